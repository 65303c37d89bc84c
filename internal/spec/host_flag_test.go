package spec

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

func TestParseHostFlag_ReadsEveryPart(t *testing.T) {
	cp, worker, etcd := v1alpha1.RoleControlPlane, v1alpha1.RoleWorker, v1alpha1.RoleEtcd
	for _, tc := range []struct {
		flag, reason string
		want         HostFlag
		id           string
	}{
		{"root@10.0.0.11=control-plane", "the common form", HostFlag{User: "root", Address: "10.0.0.11", Roles: []v1alpha1.Role{cp}}, ""},
		{
			"10.0.0.11:2222=worker,control-plane,name=a", "all parts",
			HostFlag{Address: "10.0.0.11", Port: 2222, Name: "a", Roles: []v1alpha1.Role{worker, cp}},
			"",
		},
		{"fd00::1=worker", "IPv6 alone needs no brackets", HostFlag{Address: "fd00::1", Roles: []v1alpha1.Role{worker}}, ""},
		{
			"root@[fd00::1]:22=worker", "with a port it does",
			HostFlag{User: "root", Address: "fd00::1", Port: 22, Roles: []v1alpha1.Role{worker}},
			"",
		},
		{"[fd00::1]=worker", "and may have them without", HostFlag{Address: "fd00::1", Roles: []v1alpha1.Role{worker}}, ""},
		{
			"[FD00:0::1]:22=worker", "in another spelling it is the same",
			HostFlag{Address: "fd00::1", Port: 22, Roles: []v1alpha1.Role{worker}},
			"",
		},
		{"localhost=control-plane", "this machine", HostFlag{Address: "localhost", Roles: []v1alpha1.Role{cp}}, ""},
		{"10.0.0.21=etcd", "etcd on a host of its own", HostFlag{Address: "10.0.0.21", Roles: []v1alpha1.Role{etcd}}, ""},
		{"10.0.0.21=control-plane,etcd", "or beside another role", HostFlag{Address: "10.0.0.21", Roles: []v1alpha1.Role{cp, etcd}}, ""},
		{
			"10.0.0.11=registry", "a registry on a host of its own",
			HostFlag{Address: "10.0.0.11", Roles: []v1alpha1.Role{v1alpha1.RoleRegistry}},
			"",
		},
		{"10.0.0.11", "a host without a role would be nothing", HostFlag{}, idMissingRole},
		{"10.0.0.11=", "nor is an empty one", HostFlag{}, idMissingRole},
		{"10.0.0.11=name=a", "nor a name alone", HostFlag{}, idMissingRole},
		{"10.0.0.11=wroker", "misspelt", HostFlag{}, idUnknownRole},
		{"10.0.0.11=worker,worker", "twice", HostFlag{}, idInvalidHostFlag},
		{"10.0.0.11=worker,nmae=a", "unknown part", HostFlag{}, idInvalidHostFlag},
		{"@10.0.0.11=worker", "a user is missing", HostFlag{}, idInvalidHostFlag},
		{"=worker", "an address is missing", HostFlag{}, idInvalidHostFlag},
		{"10.0.0.11:0=worker", "no port", HostFlag{}, idInvalidHostFlag},
		{"10.0.0.11:ssh=worker", "no port either", HostFlag{}, idInvalidHostFlag},
		{"10.0.0.300=worker", "no address", HostFlag{}, idInvalidHostFlag},
		{"a b=worker", "no name", HostFlag{}, idInvalidHostFlag},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			got, err := ParseHostFlag(tc.flag)
			if tc.id != "" {
				var list diag.List
				if !errors.As(err, &list) || list[0].ID != tc.id || list[0].Hint == "" {
					t.Fatalf("%v, want %s: %s", err, tc.id, tc.reason)
				}
				return
			}
			if d := cmp.Diff(tc.want, got); err != nil || d != "" {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, d)
			}
		})
	}
}

func FuzzParseHostFlag(f *testing.F) {
	f.Add("root@[fd00::1]:22=worker,name=a")
	f.Add("10.0.0.11=control-plane")
	f.Fuzz(func(t *testing.T, flag string) {
		h, err := ParseHostFlag(flag)
		if err == nil && (h.Address == "" || len(h.Roles) == 0) {
			t.Errorf("%q gives half a host: %+v", flag, h)
		}
	})
}

// TestDocumentedExamples_AreValid loads what the documentation shows of cluster files:
// whole ones, a spec, or some fields of one.
func TestDocumentedExamples_AreValid(t *testing.T) {
	pages := []string{"../../README.md", "../../CONTRIBUTING.md"}
	err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)```") // a block of a numbered step is indented
	loaded := map[string]int{}
	for _, page := range pages {
		for _, e := range block.FindAllStringSubmatch(readPage(t, page), -1) {
			text := wholeExample(strings.ReplaceAll("\n"+e[2], "\n"+e[1], "\n")[1:])
			if text == "" {
				continue
			}
			loaded[filepath.Base(page)]++
			if _, err := loader.Load(page, []byte(text)); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
	want := map[string]int{
		"README.md": 1, "addons.md": 2, "audit.md": 1, "backup.md": 2, "bundle.md": 1,
		"certificates.md":    2,
		"cluster-objects.md": 3, "cluster.md": 12, "encryption.md": 1, "endpoint.md": 1, "errors.md": 1, "etcd.md": 2,
		"hardening.md": 1, "hooks.md": 1, "registry.md": 3, "runtimes.md": 1,
	}
	if d := cmp.Diff(want, loaded); d != "" {
		t.Errorf("examples by page (-want +got):\n%s", d)
	}
}

// wholeExample makes a cluster file of an example; "" is one of another file.
func wholeExample(text string) string {
	const head = "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\n"
	const host = "    - {name: cp, address: 10.0.0.10, roles: [control-plane]}\n"
	first, _, _ := strings.Cut(text, ":")
	switch {
	case strings.Contains(text, "kind: Cluster\n"):
		return text
	case first != "spec" && yamlfile.FieldsOf(reflect.TypeFor[v1alpha1.ClusterSpec]())[first] == nil:
		return ""
	case first != "spec":
		text = "spec:\n  " + strings.TrimRight(strings.ReplaceAll(text, "\n", "\n  "), " ")
	}
	const hosts = "\n  hosts:\n"
	switch {
	case strings.Contains(text, "roles: [control-plane]"):
		return head + text
	case strings.Contains(text, hosts):
		return head + strings.Replace(text, hosts, hosts+host, 1)
	}
	return head + strings.TrimRight(text, " \n") + hosts + host
}
