package etcd

import (
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
)

// TestUnitFile_RestrictsMember: a member can write only to its data directory and to
// paths in its settings.
func TestUnitFile_RestrictsMember(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		args         map[string]string
		paths, caps  string
	}{
		{"plain", "etcd needs no capability", nil, "", ""},
		{
			"logs", "etcd rotates log files, so their directories are writable",
			map[string]string{"log-outputs": "stderr,/var/log/etcd/etcd.log,/var/log/etcd/more.log,/srv/a b.log"},
			` "-/var/log/etcd" "-/srv"`, "",
		},
		{
			"metrics on port 80", "only root may listen there",
			map[string]string{"listen-metrics-urls": "http://127.0.0.1:2381,http://10.0.0.1:80"},
			"", "CAP_NET_BIND_SERVICE",
		},
		{"metrics on port 8080", "every user may listen there", map[string]string{"listen-metrics-urls": "http://127.0.0.1:8080"}, "", ""},
		{"no port", "etcd reports the error itself", map[string]string{"listen-metrics-urls": "127.0.0.1:80"}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := module.Env{Cluster: &v1alpha1.Cluster{}}
			env.Cluster.Spec.Etcd.ExtraArgs = tc.args
			file, err := unitFile(env, &engine.Host{Host: v1alpha1.Host{Name: "e1", Address: "192.0.2.1"}})
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(file.Content), "\n")
			for _, want := range []string{
				`ReadWritePaths="-/var/lib/etcd"` + tc.paths, "CapabilityBoundingSet=" + tc.caps,
				"ProtectSystem=strict", "NoNewPrivileges=yes", "SystemCallFilter=@system-service", "LimitMEMLOCK=infinity",
			} {
				if !slices.Contains(lines, want) {
					t.Errorf("%s: no line %s in\n%s", tc.reason, want, file.Content)
				}
			}
		})
	}
}
