//go:build linux

package executor

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/facts"
	"slipway.dev/slipway/internal/node/executor/images"
	"slipway.dev/slipway/internal/node/executor/netfilter"
	"slipway.dev/slipway/internal/node/executor/system"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
)

func FuzzParsers(f *testing.F) {
	f.Add("ID=debian\nPRETTY_NAME=\"a \\\"b\\\"\"\nID_LIKE='x y'\n")
	f.Add("eth0 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0\n")
	f.Add("  0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 12345 1\n")
	f.Add("REF TYPE DIGEST\na b sha256:c 1 MiB linux/amd64 x=y,io.cri-containerd.pinned=pinned\n")
	f.Add("/dev/sda\\0401 partition 1 0 -2\n")
	f.Fuzz(func(t *testing.T, text string) {
		raw := []byte(text)
		facts.ParseOSRelease(text)
		for _, r := range append(facts.ParseRoutes(text), facts.ParseRoutes6(text)...) {
			if r == "" {
				t.Error("a route without a name")
			}
		}
		facts.ParseListeners(text, "tcp")
		images.ParseImages(text)
		system.ParseSwaps(raw)
		facts.ParseMemTotal(text)
		system.MayRaiseLimits(text)
		system.HardLimit(text, "Max open files")
		system.InModules(raw, "x")
		system.InBuiltin(raw, "x")
		facts.IsInDep(raw, "x")
		system.InFilesystems(raw, "x")
		systemctl.ParseProperties(text)
		netfilter.ParseAttrs(raw)
		netfilter.RuleJumps(raw)
		if off := system.WithoutSwap(raw); !strings.Contains(text, system.SwapMark) && !bytes.Equal(system.WithSwap(off), raw) {
			t.Errorf("swap out of %q and in again: %q", text, system.WithSwap(off))
		}
	})
}

// TestParsers_ReadSystemFiles checks the parsers of files in /etc and /proc with one
// example for each.
func TestParsers_ReadSystemFiles(t *testing.T) {
	t.Parallel()
	os := facts.ParseOSRelease("# c\nID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian \\\"GNU\\\"\"\nID_LIKE='a b'\n")
	if diff := cmp.Diff(op.OS{ID: "debian", Version: "12", Name: `Debian "GNU"`, Like: []string{"a", "b"}}, os); diff != "" {
		t.Errorf("os-release:\n%s", diff)
	}
	routes := facts.ParseRoutes("Iface Destination Gateway\neth0 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0\neth0 " +
		"0001A8C0 00000000 0001 0 0 100 00FFFFFF 0 0 0\n")
	if diff := cmp.Diff([]string{"192.168.1.0/24", "default"}, routes); diff != "" {
		t.Errorf("routes:\n%s", diff)
	}
	routes = facts.ParseRoutes6("fd000000000000000000000000000000 08 00000000000000000000000000000000 00 " +
		"00000000000000000000000000000000 0 0 0 0 eth0\nfe800000000000000000000000000000 40 0 00 0 0 0 0 0 eth0\n")
	if diff := cmp.Diff([]string{"fd00::/8"}, routes); diff != "" {
		t.Errorf("IPv6 routes:\n%s", diff)
	}
	listeners := facts.ParseListeners("sl\n 0: 00000000:192B 00000000:0000 0A 0:0 0:0 0 0 0 77 1\n 1: 0100007F:0016 "+
		"0100007F:9999 01 0:0 0:0 0 0 0 78 1\n",
		"tcp")
	if len(listeners) != 1 || listeners[0].Port != 6443 || listeners[0].Inode != "77" {
		t.Errorf("listeners: %+v", listeners)
	}
	if got := fmt.Sprint(system.ParseSwaps([]byte("Filename Type Size Used Priority\n/dev/a\\040b partition 1 0 -2\n"))); got !=
		"[{/dev/a b -2}]" {
		t.Errorf("swaps: %s", got)
	}
	named := facts.ParseHosts("127.0.0.1 localhost\n127.0.1.1\tw1.example.com w1 # its own\n#192.0.2.9 w2\n"+
		"# BEGIN slipway prod\n192.0.2.1 w1 api\n# END slipway prod\n192.0.2.9 api api\nw2\n", []string{"w1", "w2", "api"})
	if diff := cmp.Diff([]op.Named{{Name: "w1", Address: "127.0.1.1"}, {Name: "api", Address: "192.0.2.9"}}, named); diff != "" {
		t.Errorf("hosts:\n%s", diff)
	}
	if !system.MayRaiseLimits("Name: x\nCapEff:\t0000000001000000\n") || system.MayRaiseLimits("CapEff:\t0000000000000000\n") {
		t.Error("capability 24 is misread")
	}
}
