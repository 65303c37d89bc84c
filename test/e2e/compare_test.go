package e2e

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A snapshot is the state of a machine, by kind and name: "file /etc/hosts",
// "sysctl vm.swappiness", "link cni0", "mount /var/lib/x", "unit x.service".
type snapshot map[string]entry

// An entry describes one file or object. Meta is its type, mode, owner and link target;
// Content is its content; About is the meaning of random content.
type entry struct {
	Meta    string `json:"meta"`
	Content string `json:"content,omitempty"`
	About   string `json:"about,omitempty"`
}

// formatEntry is an entry for people.
func (e entry) formatEntry() string {
	if e.About != "" {
		return e.Meta + " " + e.About
	}
	return e.Meta + " " + e.Content
}

// ofKubernetes matches what only an install brings to a machine: programs that
// lie there or run, their units, links, mounts and directories.
var ofKubernetes = regexp.MustCompile(`^(file|process|units|running|mount|link|netns) (.*/)?` +
	`(containerd.*|runc|ctr|crictl.*|kube(let|adm|ctl|pods|rnetes)?([-. ].*)?|cni\d*|flannel.*|etcd.*)$`)

// diffStates lists what differs, one line each: "+ file /etc/x …" is new.
func diffStates(before, after snapshot) []string {
	return compareSnapshots(before, after, nil)
}

// compareSnapshots lists the differences that no volatile entry allows.
func compareSnapshots(before, after snapshot, allow []volatile) []string {
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
		switch how := findAllowance(key, allow); {
		case how == allowAll, was == is && how.equalEntries(a, b):
		case !is:
			out = append(out, fmt.Sprintf("- %s %s", key, a.formatEntry()))
		case !was:
			out = append(out, fmt.Sprintf("+ %s %s", key, b.formatEntry()))
		default:
			out = append(out, fmt.Sprintf("~ %s: %s → %s", key, a.formatEntry(), b.formatEntry()))
		}
	}
	return out
}

// An allowance is how much of a thing may differ.
type allowance string

// The allowances, the widest last.
const (
	allowNone    allowance = ""
	allowBytes   allowance = "bytes"   // what they mean may not
	allowContent allowance = "content" // it must be there, with its mode and owner
	allowAll     allowance = "all"
)

var allowances = []allowance{allowNone, allowBytes, allowContent, allowAll}

// equalEntries compares the parts that must not differ. Bytes without a meaning must be
// equal.
func (how allowance) equalEntries(a, b entry) bool {
	switch {
	case how == allowContent, how == allowBytes && a.About != "" && b.About != "":
		a.Content, b.Content = "", ""
	}
	if how == allowContent {
		a.About, b.About = "", ""
	}
	return a == b
}

// A volatile describes an allowed difference, with the reason: a line of
// ignored_differences.txt.
type volatile struct {
	how     allowance
	pattern *regexp.Regexp
}

// findAllowance returns the widest allowance among the matching lines.
func findAllowance(key string, list []volatile) allowance {
	how := 0
	for _, v := range list {
		if v.pattern.MatchString(key) {
			how = max(how, slices.Index(allowances, v.how))
		}
	}
	return allowances[how]
}

// scopes are the comparisons.
var scopes = []string{"any", "touched", "other", "cluster"}

// readVolatile reads the lines of ignored_differences.txt for one comparison: the lines of
// scope "any", and the lines of the given scope.
func readVolatile(t *testing.T, scope string) []volatile {
	t.Helper()
	f, err := os.Open("ignored_differences.txt")
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
		if len(f) < 4 || text == lines.Text() || !slices.Contains(scopes, f[0]) || !slices.Contains(allowances, allowance(f[1])) {
			t.Fatalf("ignored_differences.txt:%d: want SCOPE all|content|bytes KIND PATTERN # reason", n)
		}
		if f[0] == scope || f[0] == "any" {
			out = append(out, volatile{allowance(f[1]), compileGlob(strings.Join(f[2:], " "))})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// compileGlob is a pattern in which * stays within a path's element or a word and **
// does not.
func compileGlob(pattern string) *regexp.Regexp {
	text := regexp.QuoteMeta(pattern)
	text = strings.ReplaceAll(text, `\*\*`, ".*")
	text = strings.ReplaceAll(text, `\*`, "[^/ ]*")
	return regexp.MustCompile("^" + text + "$")
}
