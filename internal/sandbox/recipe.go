package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// basePackages are the packages of a minimal Debian with systemd and sshd. Everything
// else that a cluster needs comes from its bundle: no iptables, no nft, no containerd.
var basePackages = []string{
	"systemd", "systemd-sysv", "dbus", "openssh-server", "iproute2", "kmod",
	"ca-certificates", "procps", "sudo",
}

// recipeVersion changes with the code that builds the tree.
const recipeVersion = 1

// A recipe is everything that determines the base tree.
type recipe struct {
	Version  int               `json:"version"`
	Suite    string            `json:"suite"`
	Arch     string            `json:"arch"`
	Packages []string          `json:"packages"`
	Files    map[string]string `json:"files"`
	Masked   []string          `json:"masked"`
}

func newRecipe(suite, arch string) recipe {
	return recipe{
		Version: recipeVersion, Suite: suite, Arch: arch, Packages: basePackages,
		Files: map[string]string{
			// A blocked unit must not delay a reboot for 90 s.
			"etc/systemd/system.conf.d/sandbox.conf": "[Manager]\nDefaultTimeoutStopSec=8s\n",
			// The kernel's messages belong to the host.
			"etc/systemd/journald.conf.d/sandbox.conf": "[Journal]\nReadKMsg=no\n",
			"etc/ssh/sshd_config.d/sandbox.conf":       "UseDNS no\n",
			"etc/fstab":                                "",
			// Empty: generated at a machine's first boot.
			"etc/machine-id": "",
		},
		// There are no devices to wait for, and no console to log in at.
		Masked: []string{
			"systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket",
			"systemd-udev-trigger.service", "systemd-udev-settle.service",
			"getty.target", "console-getty.service",
		},
	}
}

// treeDigest identifies the tree.
func (r recipe) treeDigest() (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]), nil
}

func (r recipe) fileNames() []string { return slices.Sorted(maps.Keys(r.Files)) }
