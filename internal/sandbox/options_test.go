package sandbox

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
)

func TestOptions_HaveDefaultsAndLimits(t *testing.T) {
	tests := map[string]struct {
		reason string
		o      Options
		want   []string // ids of what is wrong
	}{
		"defaults": {"a name is enough", Options{Name: "dev", Machines: 1, ControlPlanes: 1, Disk: 20 << 30}, nil},
		"no name":  {"a name is needed", Options{Machines: 1, ControlPlanes: 1, Disk: 20 << 30}, []string{"sandbox-bad-name"}},
		"path": {
			"a name becomes a directory",
			Options{Name: "../dev", Machines: 1, ControlPlanes: 1, Disk: 20 << 30},
			[]string{"sandbox-bad-name"},
		},
		"option": {
			"a name is given to programs",
			Options{Name: "-dev", Machines: 1, ControlPlanes: 1, Disk: 20 << 30},
			[]string{"sandbox-bad-name"},
		},
		"too many": {
			"addresses are few",
			Options{Name: "dev", Machines: 201, ControlPlanes: 1, Disk: 20 << 30},
			[]string{"sandbox-bad-number"},
		},
		"no machine": {
			"none is not one",
			Options{Name: "dev", ControlPlanes: 1, Disk: 20 << 30},
			[]string{"sandbox-bad-number", "sandbox-bad-number"},
		},
		"no control plane": {"none is not one", Options{Name: "dev", Machines: 1, Disk: 20 << 30}, []string{"sandbox-bad-number"}},
		"no disk":          {"none is not the default", Options{Name: "dev", Machines: 1, ControlPlanes: 1}, []string{"sandbox-bad-number"}},
		"control planes": {
			"they are among the machines",
			Options{Name: "dev", Machines: 1, ControlPlanes: 3, Disk: 20 << 30},
			[]string{"sandbox-bad-number"},
		},
		"small disk": {
			"the system must fit",
			Options{Name: "dev", Disk: 1 << 30, Machines: 1, ControlPlanes: 1},
			[]string{"sandbox-bad-number"},
		},
		"small range": {
			"a sandbox needs a /24",
			Options{Name: "dev", Pool: netip.MustParsePrefix("198.18.0.0/25"), Machines: 1, ControlPlanes: 1, Disk: 20 << 30},
			[]string{"sandbox-bad-range"},
		},
		"ipv6": {
			"ranges are IPv4",
			Options{Name: "dev", Pool: netip.MustParsePrefix("fd00::/16"), Machines: 1, ControlPlanes: 1, Disk: 20 << 30},
			[]string{"sandbox-bad-range"},
		},
		"all": {
			"all that is wrong is said at once",
			Options{Name: "A", Machines: -1, ControlPlanes: 1, Disk: 20 << 30},
			[]string{"sandbox-bad-name", "sandbox-bad-number", "sandbox-bad-number"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tt.o.withDefaults()
			var list diag.List
			if err != nil && !errors.As(err, &list) {
				t.Fatal(err)
			}
			var got []string
			for _, d := range list {
				got = append(got, d.ID)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, d)
			}
		})
	}
}

func TestRecipeDigest_DistinguishesTrees(t *testing.T) {
	a, errA := newRecipe("bookworm", "amd64").treeDigest()
	b, errB := newRecipe("trixie", "amd64").treeDigest()
	if errA != nil || errB != nil || a == b {
		t.Errorf("got %s and %s, %v, %v: other trees must have other names", a, b, errA, errB)
	}
}

func TestBuiltIn_ListsKernelModules(t *testing.T) {
	got := builtIn("#\nCONFIG_OVERLAY_FS=y\nCONFIG_IP_VS=m\n# CONFIG_VXLAN is not set\n")
	if d := cmp.Diff([]string{"kernel/fs/overlayfs/overlay.ko"}, got); d != "" {
		t.Errorf("only what is built in (-want +got):\n%s", d)
	}
}
