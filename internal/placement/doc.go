// Package placement finds places, and is pure: of MIG instances and vGPUs on a GPU, and of
// shares on the GPUs and instances of hosts. It says too what a place means for what is
// there: what would have to go, and who is in the way.
package placement
