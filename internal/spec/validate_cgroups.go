package spec

import (
	"github.com/BurntSushi/toml"

	"slipway.dev/slipway/api/v1alpha1"
)

// checkSameCgroups rejects another cgroup driver on an existing cluster. A kubelet gets the
// driver from the runtime at its start, but pods keep their cgroups: until all pods of a
// node are new, kubelet and runtime look for them in different places.
func (v changeValidator) checkSameCgroups(old v1alpha1.ContainerRuntime) {
	was, is := cgroupsBySystemd(old.Config), cgroupsBySystemd(v.c.Spec.ContainerRuntime.Config)
	if was == is || UsesDocker(v.c) || old.Type != v.c.Spec.ContainerRuntime.Type {
		return
	}
	hint := "leave SystemdCgroup out"
	if !was {
		hint = "write SystemdCgroup = false, the current value"
	}
	v.refuse(idImmutableField, pathContainerd,
		"SystemdCgroup of runtime runc cannot change: running pods keep the cgroups of the previous driver", hint)
}

// cgroupsBySystemd reports whether containerd uses systemd for the cgroups of containers,
// which is Slipway's setting.
func cgroupsBySystemd(config string) bool {
	var settings struct {
		Plugins map[string]struct {
			Containerd struct {
				Runtimes map[string]struct {
					Options struct{ SystemdCgroup *bool }
				} `toml:"runtimes"`
			} `toml:"containerd"`
		} `toml:"plugins"`
	}
	if _, err := toml.Decode(config, &settings); err != nil {
		return true // another check rejects it
	}
	by := settings.Plugins[criRuntime].Containerd.Runtimes["runc"].Options.SystemdCgroup
	return by == nil || *by
}
