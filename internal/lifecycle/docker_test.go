package lifecycle

import (
	"strings"
	"testing"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/event"
)

// TestDockerNeedsItsBundle: without Docker in the bundle nothing is begun, whether
// there is another bundle or none.
func TestDockerNeedsItsBundle(t *testing.T) {
	for name, version := range map[string]string{"the bundle has no Docker": "", "there is no bundle": "v1.36.9"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			c := w.cluster()
			c.Spec.ContainerRuntime.Type = "docker"
			if version != "" {
				c.Spec.Kubernetes.Version = version
			}
			_, err := w.service().Prepare(t.Context(), Request{Kind: Create, Cluster: c}, nil)
			refusal(t, err, bundle.IDNoDocker)
			for _, want := range []string{"slipway bundle build --kubernetes v1.3", "--runtime docker --source modules", "type: containerd"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("it does not say %q: %v", want, err)
				}
			}
		})
	}
}

// TestDockerIsNotUpgraded: no cluster with Docker is.
func TestDockerIsNotUpgraded(t *testing.T) {
	w := newWorld(t, "cp1", "w1")
	s := w.service()
	w.create(event.Succeeded)
	c := w.cluster()
	recorded, err := s.Store.Cluster(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	recorded.Spec.ContainerRuntime.Type = "docker"
	if err := s.Store.SaveCluster(recorded, nil); err != nil {
		t.Fatal(err)
	}
	_, err = s.Prepare(t.Context(), Request{Kind: Upgrade, Name: c.Name, Version: "v1.37.1"}, nil)
	refusal(t, err, idUpgradeHow)
}
