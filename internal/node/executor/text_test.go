//go:build linux

package executor

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

func TestUnified(t *testing.T) {
	long := strings.Repeat("same\n", 10)
	for _, c := range []struct{ name, reason, from, a, b, want string }{
		{"equal", "nothing to show", "/f", "a\n", "a\n", ""},
		{"binary", "not text", "/f", "a\x00", "b", ""},
		{"create", "every line is new", "/dev/null", "", "a\nb\n", "--- /dev/null\n+++ /f\n@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{
			"change", "three lines around it", "/f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n",
			"--- /f\n+++ /f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
		},
		{
			"two hunks", "far apart", "/f", "a\n" + long + "b\n", "A\n" + long + "B\n",
			"--- /f\n+++ /f\n@@ -1,4 +1,4 @@\n-a\n+A\n same\n same\n same\n@@ -9,4 +9,4 @@\n same\n same\n same\n-b\n+B\n",
		},
		{"no newline", "the missing end is a difference", "/f", "a", "a\n",
			"--- /f\n+++ /f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, unified(c.from, "/f", []byte(c.a), []byte(c.b))); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
		})
	}
	big := unified("/f", "/f", nil, bytes.Repeat([]byte("line of text\n"), 20000))
	if len(big) > maxDiff || !strings.HasSuffix(big, "left out]\n") {
		t.Errorf("a long diff has %d bytes and ends in %q", len(big), big[len(big)-40:])
	}
}

func TestGist(t *testing.T) {
	const advice = "To see the stack trace of this error execute with --v=5 or higher\n"
	for _, c := range []struct{ name, reason, in, want string }{
		{"nothing", "it said nothing", "", ""},
		{"last", "programs end with what matters", "starting\nno space left\n\n", "no space left"},
		{"advice", "kubeadm ends with advice", "error: timed out\n" + advice, "error: timed out"},
		{
			"preflight", "the lines that are marked are the cause",
			"[WARNING Swap]: swap is on\n[preflight] Some fatal errors occurred:\n\t[ERROR Port-10250]: Port 10250 is in use\n\t[ERROR CRI]: no runtime\nerror: preflight checks failed\n" +

				advice,
			"Port-10250: Port 10250 is in use; CRI: no runtime",
		},
		{"long", "both ends tell", strings.Repeat("é", 200) + "ends", strings.Repeat("é", 75) + " … " + strings.Repeat("é", 73) + "ends"},
	} {
		if got := gist(c.in); got != c.want {
			t.Errorf("%s: %q, want %q: %s", c.name, got, c.want, c.reason)
		}
	}
}

func TestFullDiskOfAProgram(t *testing.T) {
	e := &op.Error{Reason: "CommandFailed", Message: "ctr exited with 1", Detail: "ctr: failed to extract layer: write /var/lib/x: no space left on device"}
	say(e)
	want := &op.Error{Reason: "DiskFull", Message: "ctr exited with 1: " + e.Detail, Detail: e.Detail}
	if d := cmp.Diff(want, e); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// patch applies an edit script's two sides.
func sides(edits []edit) (a, b string) {
	for _, e := range edits {
		if e.op != '+' {
			a += e.text
		}
		if e.op != '-' {
			b += e.text
		}
	}
	return a, b
}

func FuzzCompare(f *testing.F) {
	f.Add("a\nb\nc\n", "b\nc\nd\n")
	f.Add("", "x")
	f.Add("x\ny", "x\ny\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		edits := compare(splitLines([]byte(a)), splitLines([]byte(b)))
		gotA, gotB := sides(edits)
		if gotA != a || gotB != b {
			t.Errorf("compare(%q, %q) gives back %q and %q", a, b, gotA, gotB)
		}
		unified("/a", "/b", []byte(a), []byte(b))
	})
}

func TestSetBlock(t *testing.T) {
	mark := func(lines string) string { return "# BEGIN slipway x\n" + lines + "# END slipway x\n" }
	for _, c := range []struct {
		name, reason, text string
		lines              []string
		want               string
	}{
		{"into nothing", "the file is new", "", []string{"a"}, mark("a\n")},
		{"at the end", "there is none yet", "1\n2\n", []string{"a"}, "1\n2\n" + mark("a\n")},
		{"no newline", "the last line gets its end", "1", []string{"a"}, "1\n" + mark("a\n")},
		{"in place", "others' lines stay around it", "1\n" + mark("a\n") + "2", []string{"b", "c"}, "1\n" + mark("b\nc\n") + "2"},
		{"other block", "only the named one is ours", "# BEGIN slipway y\n# END slipway y\n", []string{"a"}, "# BEGIN slipway y\n# END slipway y\n" + mark("a\n")},
		{"remove", "no lines, no block", "1\n" + mark("a\n") + "2", nil, "1\n2"},
		{"remove nothing", "the file stays as it is", "1", nil, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := setBlock([]byte(c.text), "x", c.lines)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
		})
	}
	if _, err := setBlock([]byte("# BEGIN slipway x\nmine\n"), "x", nil); err == nil {
		t.Error("a block without an end would have taken the rest of the file")
	}
}

func FuzzSetBlock(f *testing.F) {
	f.Add("127.0.0.1 localhost\n", "10.0.0.1 a")
	f.Add("no end", "x")
	f.Add("# BEGIN slipway n\n# END slipway n\n", "y")
	f.Fuzz(func(t *testing.T, text, line string) {
		if checkLines(op.Block{Name: "n", Lines: []string{line}}) != nil {
			return
		}
		plain, err := setBlock([]byte(text), "n", nil)
		if err != nil {
			return
		}
		with, err := setBlock([]byte(text), "n", []string{line})
		if err != nil {
			t.Fatal(err)
		}
		again, err := setBlock(with, "n", []string{line})
		if err != nil || !bytes.Equal(with, again) {
			t.Errorf("writing %q twice: %q, then %q (%v)", line, with, again, err)
		}
		without, err := setBlock(with, "n", nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(without, plain) && !bytes.Equal(without, append(plain, '\n')) && !strings.Contains(text, "slipway n") {
			t.Errorf("%q became %q", plain, without)
		}
	})
}

func TestSysctlPath(t *testing.T) {
	for key, want := range map[string]string{
		"net.ipv4.ip_forward":            "/proc/sys/net/ipv4/ip_forward",
		"net/ipv4/conf/eth0.1/rp_filter": "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
		"net.ipv4.conf.eth0/1.rp_filter": "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
		"kernel.panic":                   "/proc/sys/kernel/panic",
		"":                               "",
		"../../etc/passwd":               "",
		"/etc/passwd":                    "",
		"net.ipv4.ip_forward=1":          "",
	} {
		got, err := sysctlPath(key)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("sysctlPath(%q) = %q, %v; want %q", key, got, err, want)
		}
	}
}

func FuzzParsers(f *testing.F) {
	f.Add("ID=debian\nPRETTY_NAME=\"a \\\"b\\\"\"\nID_LIKE='x y'\n")
	f.Add("eth0 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0\n")
	f.Add("  0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 12345 1\n")
	f.Add("REF TYPE DIGEST\na b sha256:c 1 MiB linux/amd64 x=y,io.cri-containerd.pinned=pinned\n")
	f.Add("/dev/sda\\0401 partition 1 0 -2\n")
	f.Fuzz(func(t *testing.T, text string) {
		raw := []byte(text)
		parseOSRelease(text)
		for _, r := range append(parseRoutes(text), parseRoutes6(text)...) {
			if r == "" {
				t.Error("a route without a name")
			}
		}
		parseListeners(text, "tcp")
		parseImages(text)
		parseSwaps(raw)
		parseMemTotal(text)
		mayRaiseLimits(text)
		inModules(raw, "x")
		inBuiltin(raw, "x")
		inDep(raw, "x")
		inFilesystems(raw, "x")
		properties(text)
		attrs(raw)
		ruleJumps(raw)
		if off := withoutSwap(raw); !strings.Contains(text, swapMark) && !bytes.Equal(withSwap(off), raw) {
			t.Errorf("swap out of %q and in again: %q", text, withSwap(off))
		}
	})
}

func TestParsers(t *testing.T) {
	os := parseOSRelease("# c\nID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian \\\"GNU\\\"\"\nID_LIKE='a b'\n")
	if diff := cmp.Diff(op.OS{ID: "debian", Version: "12", Name: `Debian "GNU"`, Like: []string{"a", "b"}}, os); diff != "" {
		t.Errorf("os-release:\n%s", diff)
	}
	routes := parseRoutes("Iface Destination Gateway\neth0 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0\neth0 0001A8C0 00000000 0001 0 0 100 00FFFFFF 0 0 0\n")
	if diff := cmp.Diff([]string{"192.168.1.0/24", "default"}, routes); diff != "" {
		t.Errorf("routes:\n%s", diff)
	}
	routes = parseRoutes6("fd000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 0 0 0 0 eth0\nfe800000000000000000000000000000 40 0 00 0 0 0 0 0 eth0\n")
	if diff := cmp.Diff([]string{"fd00::/8"}, routes); diff != "" {
		t.Errorf("IPv6 routes:\n%s", diff)
	}
	listeners := parseListeners("sl\n 0: 00000000:192B 00000000:0000 0A 0:0 0:0 0 0 0 77 1\n 1: 0100007F:0016 0100007F:9999 01 0:0 0:0 0 0 0 78 1\n", "tcp")
	if len(listeners) != 1 || listeners[0].port != 6443 || listeners[0].inode != "77" {
		t.Errorf("listeners: %+v", listeners)
	}
	if got := fmt.Sprint(parseSwaps([]byte("Filename Type Size Used Priority\n/dev/a\\040b partition 1 0 -2\n"))); got != "[{/dev/a b -2}]" {
		t.Errorf("swaps: %s", got)
	}
	named := parseHosts("127.0.0.1 localhost\n127.0.1.1\tw1.example.com w1 # its own\n#192.0.2.9 w2\n"+
		"# BEGIN slipway prod\n192.0.2.1 w1 api\n# END slipway prod\n192.0.2.9 api api\nw2\n", []string{"w1", "w2", "api"})
	if diff := cmp.Diff([]op.Named{{Name: "w1", Address: "127.0.1.1"}, {Name: "api", Address: "192.0.2.9"}}, named); diff != "" {
		t.Errorf("hosts:\n%s", diff)
	}
	if !mayRaiseLimits("Name: x\nCapEff:\t0000000001000000\n") || mayRaiseLimits("CapEff:\t0000000000000000\n") {
		t.Error("capability 24 is misread")
	}
}
