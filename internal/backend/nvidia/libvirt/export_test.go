package libvirt

// Parse is for fuzzing.
var Parse = parse
