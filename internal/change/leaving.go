package change

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// On is the change as one host has it, which knows itself by a key. For a host that the object
// leaves, while it stays on others, that is its end there, by what is declared by now about
// how it ends.
func (ch Change) On(key string) Change {
	switch want, prior := ch.Want, ch.Prior; {
	case want.Config != nil && prior.Config != nil && leaves(want.Config.GPUs, prior.Config.GPUs, key):
		c := *prior.Config
		c.Restore, c.MaxDisruption, c.QuiesceUnits = want.Config.Restore, want.Config.MaxDisruption, want.Config.QuiesceUnits
		ch.Want, ch.Prior.Config = gpu.Want{}, &c
	case want.Pool != nil && prior.Pool != nil && leaves(want.Pool.Members, prior.Pool.Members, key):
		c := *prior.Pool
		c.MountBack, c.Force = want.Pool.MountBack, want.Pool.Force
		ch.Want, ch.Prior.Pool = gpu.Want{}, &c
	}
	return ch
}

func leaves(want, prior map[string][]string, key string) bool {
	_, stays := want[key]
	_, was := prior[key]
	return was && !stays
}
