//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// snapshot describes a sandbox machine, file by file. The test program
// itself goes there and looks; it leaves nothing behind.
func (u *user) snapshot(t *testing.T, machine string) snapshot {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const collector = "/run/slipway-e2e-collector"
	u.copyTo(t, machine, self, collector)
	out := u.inside(t, machine, "sh", "-c", collectMode+"=files "+collector+"; rc=$?; rm -f "+collector+"; exit $rc")
	s := decode[snapshot](t, out)
	delete(s, "file "+collector)
	return s
}

// hostState describes this host without its files: what a sandbox could
// leave behind.
func hostState() (snapshot, error) {
	var out strings.Builder
	if err := writeSnapshot(&out, false); err != nil {
		return nil, err
	}
	var s snapshot
	if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
		return nil, err
	}
	if err := s.addLoops(); err != nil {
		return nil, err
	}
	// Programs and units come and go on a host that others use as well.
	maps.DeleteFunc(s, func(key string, _ entry) bool {
		kind, name, _ := strings.Cut(key, " ")
		// The one thing that stays on purpose: docs/adr/0002-sandbox-range.md.
		stays := kind == "routes" && strings.HasPrefix(name, "unreachable 198.18.0.0/16")
		return kind == "process" && !strings.HasPrefix(name, "slipway") || kind == "running" || kind == "units" || stays
	})
	return s, nil
}

// addLoops describes the loop devices that are in use.
func (s snapshot) addLoops() error {
	devices, err := os.ReadDir("/sys/block")
	if err != nil {
		return err
	}
	for _, d := range devices {
		if backing, err := os.ReadFile(path.Join("/sys/block", d.Name(), "loop/backing_file")); err == nil {
			s["loop "+strings.TrimSpace(string(backing))] = entry{}
		}
	}
	return nil
}

// diffStates lists what differs, one line each: "+ file /etc/x …" is new.
func diffStates(before, after snapshot) []string {
	return compare(before, after, nil)
}

// compare lists the differences that no volatile entry allows.
func compare(before, after snapshot, allow []volatile) []string {
	keys := slices.Sorted(maps.Keys(before))
	for key := range after {
		if _, ok := before[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var out []string
	for _, key := range keys {
		a, was := before[key]
		b, is := after[key]
		all, content := allowed(key, allow)
		if content {
			a.Content, b.Content = "", ""
		}
		switch {
		case all || was == is && a == b:
		case !is:
			out = append(out, fmt.Sprintf("- %s %s %s", key, a.Meta, a.Content))
		case !was:
			out = append(out, fmt.Sprintf("+ %s %s %s", key, b.Meta, b.Content))
		default:
			out = append(out, fmt.Sprintf("~ %s: %s %s → %s %s", key, a.Meta, a.Content, b.Meta, b.Content))
		}
	}
	return out
}

// A volatile is what may differ, and why: a line of volatile.txt.
type volatile struct {
	content bool // its content alone; it must be there, with its mode and owner
	pattern *regexp.Regexp
}

func allowed(key string, list []volatile) (all, content bool) {
	for _, v := range list {
		if v.pattern.MatchString(key) {
			all = all || !v.content
			content = content || v.content
		}
	}
	return all, content
}

// readVolatile reads the lines of volatile.txt for one comparison: those of
// scope "any" and those of the one named.
func readVolatile(t *testing.T, scope string) []volatile {
	t.Helper()
	f, err := os.Open("volatile.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []volatile
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), " # ")
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		f := strings.Fields(text)
		if len(f) != 4 || text == lines.Text() || !slices.Contains([]string{"all", "content"}, f[1]) {
			t.Fatalf("volatile.txt:%d: want SCOPE all|content KIND PATTERN # reason", n)
		}
		if f[0] == scope || f[0] == "any" {
			out = append(out, volatile{f[1] == "content", glob(f[2] + " " + f[3])})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// glob is a pattern in which * stays within a path's element or a word and **
// does not.
func glob(pattern string) *regexp.Regexp {
	text := regexp.QuoteMeta(pattern)
	text = strings.ReplaceAll(text, `\*\*`, ".*")
	text = strings.ReplaceAll(text, `\*`, "[^/ ]*")
	return regexp.MustCompile("^" + text + "$")
}

// same fails the test for every difference that volatile.txt does not allow.
func same(t *testing.T, what, scope string, before, after snapshot) {
	t.Helper()
	const most = 200
	diff := compare(before, after, readVolatile(t, scope))
	if len(diff) == 0 {
		return
	}
	t.Errorf("%s: %d differences:\n  %s", what, len(diff), strings.Join(diff[:min(len(diff), most)], "\n  "))
}

// untouched fails the test if the machine carries anything of Kubernetes:
// what Slipway shows, it installed itself.
func (s snapshot) untouched(t *testing.T, machine string) {
	t.Helper()
	kubernetes := regexp.MustCompile(`^(file|process|units|mount|link) (.*/)?(containerd.*|runc|ctr|crictl|kube(let|adm|ctl|-.*|pods.*)|cni\d*|flannel.*|etcd.*)$`)
	for key := range s {
		if kubernetes.MatchString(key) || strings.HasPrefix(key, "file /opt/cni") || strings.HasPrefix(key, "file /var/lib/slipway") {
			t.Errorf("%s carries %q before the install", machine, key)
		}
	}
}
