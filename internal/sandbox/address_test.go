package sandbox

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFreeRange_FillsGaps(t *testing.T) {
	tests := map[string]struct {
		reason string
		pool   string
		used   []string
		want   string // "" means an error
	}{
		"empty": {"the first is free", "198.18.0.0/16", nil, "198.18.0.0/24"},
		"gap": {
			"gaps are filled, so that ranges do not wander", "198.18.0.0/16",
			[]string{"198.18.0.0/24", "198.18.2.0/24"},
			"198.18.1.0/24",
		},
		"larger":   {"a route to more than a /24 takes all of it", "198.18.0.0/16", []string{"198.18.0.0/22"}, "198.18.4.0/24"},
		"address":  {"one address in a range takes it", "198.18.0.0/16", []string{"198.18.0.77/32"}, "198.18.1.0/24"},
		"default":  {"networks elsewhere do not matter", "198.18.0.0/16", []string{"10.0.0.0/8", "fd00::/64"}, "198.18.0.0/24"},
		"carry":    {"the third byte carries into the second", "10.1.0.0/15", []string{"10.0.0.0/16"}, "10.1.0.0/24"},
		"full":     {"a full pool is refused", "198.18.4.0/23", []string{"198.18.4.0/24", "198.18.5.0/24"}, ""},
		"unmasked": {"a pool may be written with any of its addresses", "198.18.7.9/24", nil, "198.18.7.0/24"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var used []netip.Prefix
			for _, u := range tt.used {
				used = append(used, netip.MustParsePrefix(u))
			}
			got, err := freeRange(netip.MustParsePrefix(tt.pool), used)
			if tt.want == "" {
				if err == nil {
					t.Errorf("%s: got %s, want an error", tt.reason, got)
				}
				return
			}
			if err != nil || got.String() != tt.want {
				t.Errorf("%s: got %s, %v; want %s", tt.reason, got, err, tt.want)
			}
		})
	}
}

func TestRangeNames_AreReversible(t *testing.T) {
	p := netip.MustParsePrefix("255.255.255.0/24")
	if got := rangeOf(rangeID(p)); got != p {
		t.Errorf("rangeOf(rangeID(%s)) = %s", p, got)
	}
	for _, bad := range []string{"", "zz", "c612", "c6120001"} {
		if got := rangeOf(bad); got.IsValid() {
			t.Errorf("rangeOf(%q) = %s, want none", bad, got)
		}
	}
	// The kernel allows 15 bytes for a link's name.
	link := "slw-" + rangeID(p) + "-254"
	if len(link) > 15 {
		t.Errorf("link %s has %d bytes", link, len(link))
	}
	if got, want := macOf(netip.MustParseAddr("198.18.7.2")), "02:00:c6:12:07:02"; got != want {
		t.Errorf("macOf: got %s, want %s", got, want)
	}
}

func TestParseHierarchies_ReadsAllTrees(t *testing.T) {
	const line = "30 23 0:26 / "
	tests := map[string]struct {
		reason, mountinfo string
		want              []hierarchy
	}{
		"v2": {
			"one tree", line + "/sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			[]hierarchy{{Mount: "/sys/fs/cgroup"}},
		},
		"hybrid": {
			"v1 has the controllers; v2 beside it has none, and systemd's tree is named",
			line + "/sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
				line + "/sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n" +
				line + "/sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
			[]hierarchy{{"/sys/fs/cgroup/systemd", "name=systemd"}, {"/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"}},
		},
		"twice": {
			"a tree that is mounted again is one tree",
			line + "/sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n" + line + "/mnt/pids rw - cgroup cgroup rw,pids\n",
			[]hierarchy{{"/sys/fs/cgroup/pids", "pids"}},
		},
		"named alone": {
			"a named tree without controllers does not make a host v1",
			line + "/sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" + line + "/sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n",
			[]hierarchy{{Mount: "/sys/fs/cgroup"}},
		},
		"none": {"other file systems are none", line + "/ rw - ext4 /dev/vda rw\nnonsense\n", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, parseHierarchies(tt.mountinfo)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, d)
			}
		})
	}
}
