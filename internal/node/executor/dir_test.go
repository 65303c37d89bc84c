//go:build linux

package executor

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

// TestDir_FollowsLinkAndNeverChangesIt checks a directory behind a symbolic link. Changes in the directory
// are rolled back, and the link is never changed.
func TestDir_FollowsLinkAndNeverChangesIt(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		link, to     string // relative, because a host made of files has no separate root
		dir          op.Dir
		made         string
	}{
		{
			"the directory itself", "its mode is the other's", "var/lib/containerd", "../../data",
			op.Dir{Path: "/var/lib/containerd", Mode: 0o700, Exclusive: true},
			"data",
		},
		{"through two links", "all are followed", "var/lib/containerd", "../../again", op.Dir{Path: "/var/lib/containerd", Mode: 0o700}, "data"},
		{
			"a parent", "as every program sees it", "var/lib/kubelet", "../../data",
			op.Dir{Path: "/var/lib/kubelet/plugins", Mode: 0o700},
			"data/plugins",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.write("data/theirs", "theirs\n")
			for link, to := range map[string]string{"again": "data", c.link: c.to} {
				if err := os.Symlink(to, h.path(link)); err != nil {
					t.Fatal(err)
				}
			}
			before := h.outside()
			h.apply(c.dir)
			if info, err := os.Stat(h.path(c.made)); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: /%s is %v, %v", c.reason, c.made, info.Mode(), err)
			}
			if to, err := os.Readlink(h.path(c.link)); to != c.to {
				t.Errorf("the link leads to %q, %v", to, err)
			}
			if r := h.check(c.dir)[0]; r.Status != op.Unchanged {
				t.Errorf("after that: %s (%s)", r.Status, r.Summary)
			}
			h.apply(op.RestoreHost{})
			if diff := cmp.Diff(before, h.outside()); diff != "" {
				t.Errorf("not as before:\n%s", diff)
			}
		})
	}
}

// TestDir_RefusesLinkWithoutValidDirectory checks that nothing is created in an unintended place.
func TestDir_RefusesLinkWithoutValidDirectory(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"../../nosuch":    "is a symbolic link to a missing file",
		"containerd":      "too many",
		"/etc":            "leads outside the file system of this host",
		"../../etc/hosts": "exists and is not a directory",
	} {
		h := newHost(t)
		if err := os.Symlink(to, h.path("var/lib/containerd")); err != nil {
			t.Fatal(err)
		}
		r := h.check(op.Dir{Path: "/var/lib/containerd"})[0]
		if r.Error == nil || !strings.Contains(r.Error.Message, want) {
			t.Errorf("a link to %s: %+v, want an error with %q", to, r, want)
		}
	}
}
