package engine

import (
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/op"
)

func TestDirty_NamesOnlyUnpackedFiles(t *testing.T) {
	const restart = "restart: /usr/local/bin/etcd changes"
	unit := op.Unit{Name: "etcd.service", RestartOn: []string{"/etc/x", "/usr/local/bin/etcd"}}
	for _, tc := range []struct {
		name    string
		members []string
		files   []string
		want    string
		reason  string
	}{
		{"other file of the members", []string{"etcd", "etcdctl"}, []string{"/usr/local/bin/etcdctl"}, "", "the unit does not use it"},
		{"other file of the directory", nil, []string{"/usr/local/bin/crictl"}, "", "the unit does not use it"},
		{"program", nil, []string{"/usr/local/bin/crictl", "/usr/local/bin/etcd"}, restart, "it is unpacked again"},
		{"unknown files of the members", []string{"etcd", "etcdctl"}, nil, restart, "each may change"},
		{"unknown files of the directory", nil, nil, restart, "each may change"},
		{"other members", []string{"crictl"}, nil, "", "the unit uses none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDirty()
			changed := op.Result{Status: op.Changed, Output: []byte(strings.Join(tc.files, "\x00"))}
			d.addChanged("a", op.Unpack{Name: "x", Dir: "/usr/local/bin", Members: tc.members}, changed)
			res := op.Result{Status: op.Unchanged}
			d.markChanged("a", unit, &res)
			if res.Summary != tc.want || (res.Status == op.Changed) != (tc.want != "") {
				t.Errorf("%s: the unit is %s (%q), want %q", tc.reason, res.Status, res.Summary, tc.want)
			}
		})
	}
}
