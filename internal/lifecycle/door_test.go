package lifecycle

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// What leads into a cluster from here leads to a control plane that answers.
func TestDoors(t *testing.T) {
	w := running(t, threeAndTwo, threeAndTwo)
	w.api.put("/readyz", object{"ok": true})
	kept, err := w.service().admin("prod")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, reason string
		doors        []string
		down         string // the machine that is off
		want         string
	}{
		{"all answer", "the first is as good as any", []string{"192.0.2.11", "192.0.2.12", "192.0.2.13"}, "", "192.0.2.11"},
		{"the first is dead", "the cluster is there, and can be reached", []string{"192.0.2.12", "192.0.2.13"}, "cp1", "192.0.2.12"},
		{"one is left", "by whichever that is", []string{"192.0.2.13"}, "cp2", "192.0.2.13"},
		{"none answers", "kubectl says so itself, of the one on record", nil, "cp1", "192.0.2.11"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.doors = tc.doors
			if m := w.machines[tc.down]; m != nil {
				m.down = errDown
				defer func() { m.down = nil }()
			}
			s, server := w.service(), []byte("server: https://"+tc.want+":6443\n")
			for _, live := range []bool{false, true} {
				conf, err := s.Kubeconfig(t.Context(), "prod", live)
				if err != nil || !bytes.Contains(conf, server) || !bytes.Contains(conf, []byte("tls-server-name: example.com")) {
					t.Errorf("live %t: %s, %v; want %s: %s", live, conf, err, tc.want, tc.reason)
				}
			}
			c, err := s.Store.Cluster("prod")
			if err != nil {
				t.Fatal(err)
			}
			env, err := s.environment(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			path, done, err := s.kubeconfigFile(t.Context(), env)
			if err != nil {
				t.Fatal(err)
			}
			conf, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(conf, server) {
				t.Errorf("kubectl goes by %s, %v; want %s: %s", conf, err, tc.want, tc.reason)
			}
			done()
			if _, err := os.Stat(path); (path != s.Store.KubeconfigPath("prod")) != errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v: only the one on record stays", path, err)
			}
			if now, err := s.admin("prod"); err != nil || !bytes.Equal(now, kept) {
				t.Errorf("the one on record has changed: %s, %v", now, err)
			}
		})
	}
}

// A load balancer that others can reach comes first, by its name if it has no
// address in the file; where it cannot be reached from here, control planes do.
func TestDoorsBehindABalancer(t *testing.T) {
	w := newWorld(t, "cp1", "w1")
	c := w.cluster()
	c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointExternal
	w.do(Request{Kind: Create, Cluster: c}, event.Succeeded)
	w.api.put("/readyz", object{"ok": true})
	for want, doors := range map[string][]string{
		"example.com": {"example.com", "192.0.2.11"},
		"192.0.2.11":  {"192.0.2.11"},
	} {
		w.doors = doors
		conf, err := w.service().Kubeconfig(t.Context(), "prod", false)
		if err != nil || !bytes.Contains(conf, []byte("server: https://"+want+":6443\n")) {
			t.Errorf("%s, %v; want %s", conf, err, want)
		}
	}
	list, err := w.service().Clusters(t.Context())
	if err != nil || list[0].Endpoint != "example.com:6443" {
		t.Errorf("clusters %+v, %v", list, err)
	}
}
