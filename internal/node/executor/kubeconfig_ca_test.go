//go:build linux

package executor

import (
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// TestKubeconfigCA_ReplacesOnlyEmbeddedCA checks that a kubeconfig gets other trusted CAs, and that nothing else
// in it changes. A kubeconfig that names a CA file, or does not exist, is left alone.
func TestKubeconfigCA_ReplacesOnlyEmbeddedCA(t *testing.T) {
	const (
		path  = "/etc/kubernetes/admin.conf"
		embed = "clusters:\n- cluster:\n    certificate-authority-data: b2xk\n    server: https://a:6443\nkind: " +
			"Config\nusers:\n- user: {client-key-data: a2V5}\n"
		names = "clusters:\n- cluster:\n    certificate-authority: /etc/kubernetes/pki/ca.crt\nkind: Config\n"
	)
	o := op.KubeconfigCA{Path: path, CA: []byte("next and old")}
	for _, tc := range []struct {
		name, text string
		changes    bool
	}{
		{"it stands in it", embed, true},
		{"it stands there already", string(pki.WithKubeconfigCA([]byte(embed), o.CA)), false},
		{"it names a file", names, false},
		{"it is not there", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			if tc.text != "" {
				h.write(path[1:], tc.text)
			}
			if got := h.check(o)[0]; (got.Status == op.Changed) != tc.changes || got.Error != nil {
				t.Fatalf("%+v", got)
			}
			if !tc.changes {
				return
			}
			h.apply(o)
			text := h.read(path[1:])
			if has, err := pki.KubeconfigCA([]byte(text)); err != nil || string(has) != string(o.CA) {
				t.Errorf("it trusts %q: %v", has, err)
			}
			if back := pki.WithKubeconfigCA([]byte(text), []byte("old")); string(back) != tc.text {
				t.Errorf("something else is another:\n%s", text)
			}
			if again := h.check(o)[0]; again.Status != op.Unchanged {
				t.Errorf("done, it is as wanted: %+v", again)
			}
		})
	}
	h := newHost(t)
	h.write(path[1:], embed+strings.TrimPrefix(embed, "clusters:\n"))
	if got := h.check(o)[0]; got.Error == nil {
		t.Error("a kubeconfig with several clusters is changed")
	}
}
