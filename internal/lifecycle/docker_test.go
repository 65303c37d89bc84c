package lifecycle

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	images "github.com/google/go-containerregistry/pkg/v1/remote"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
)

// TestDocker_NeedsBundleWithDocker: without Docker in the bundle, nothing is changed, whether
// there is another bundle or none.
func TestDocker_NeedsBundleWithDocker(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]string{"the bundle has no Docker": "", "there is no bundle": "v1.36.9"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			c := w.Manifest()
			c.Spec.ContainerRuntime.Type = "docker"
			if version != "" {
				c.Spec.Kubernetes.Version = version
			}
			_, err := w.service().Prepare(t.Context(), creating(c), nil)
			refusal(t, err, bundle.IDNoDocker)
			for _, want := range []string{"slipway bundle build --kubernetes v1.3", "--runtime docker --source modules", "type: containerd"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not contain %q: %v", want, err)
				}
			}
		})
	}
}

// TestDocker_RefusesImageWithoutTag: an image that Docker cannot load is reported before any change.
func TestDocker_RefusesImageWithoutTag(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(site.Close)
	ref := strings.TrimPrefix(site.URL, "http://") + "/team/app"
	tag, err := name.NewTag(ref + ":v1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: "amd64", OS: "linux"})
	if err == nil {
		err = images.Write(tag, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, ref string
		refused   bool
	}{
		{"a digest alone", ref + "@" + digest.String(), true},
		{"a tag and a digest", ref + ":v1@" + digest.String(), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1")
			w.cache, w.Runtime = t.TempDir(), "docker"
			w.bundledWith(t, "", bundle.BuildOptions{Docker: true, Images: []string{tc.ref}, Registry: bundle.Registry{Insecure: true}})
			p, err := w.service().Prepare(t.Context(), creating(w.Manifest()), nil)
			if tc.refused {
				refusal(t, err, bundle.IDUntagged)
				return
			}
			w.prepared(p, err)
		})
	}
}

// agedDocker returns a world with a running Docker cluster of a version. Its cache has
// bundles with Docker for that version and for others.
func agedDocker(t *testing.T, names []string, version string, others ...string) *world {
	t.Helper()
	w := newWorld(t, names...)
	w.cache = t.TempDir()
	w.bundled(t, true, append(others, version)...)
	w.Version, w.Runtime = version, "docker"
	w.create(event.Succeeded)
	w.backable(t)
	return w
}

func TestUpgradeDocker_UpgradesOneNodeAtATime(t *testing.T) {
	t.Parallel()
	w := agedDocker(t, threeAndTwo, older, "")
	w.events = nil
	w.fetchingAhead()
	w.keptAs(older, w.do(toNewest, event.Succeeded))
	w.wantVersions(all(threeAndTwo, "v1.37.1"))
	for _, step := range []string{"upgrade.drain", "kubelet.running", "upgrade.uncordon"} {
		if d := cmp.Diff(threeAndTwo, w.turns(step)); d != "" {
			t.Errorf("%s: one after the other, control planes first (-want +got):\n%s", step, d)
		}
	}
	w.before("upgrade.drain", "bundle.ahead")
	w.before("upgrade.drain", "runtime.images")
	w.runBy("docker")
	w.Version = "v1.37.1"
	w.whole()
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.bare()
}

// An upgrade that was killed at any moment can be resumed.
func TestUpgradeDocker_ResumesAfterKill(t *testing.T) {
	names := []string{"cp1", "cp2", "w1"}
	w := agedDocker(t, names, older, "")
	for _, m := range w.killed(t, toNewest) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(toNewest)
			k.wantVersions(all(names, "v1.37.1"))
			k.runBy("docker")
			k.Version = "v1.37.1"
			k.whole()
			k.same(w)
		})
	}
}

// A stopped upgrade can be rolled back.
func TestRollbackUpgrade_Docker(t *testing.T) {
	t.Parallel()
	names := []string{"cp1", "cp2", "w1"}
	w := agedDocker(t, names, older, "")
	before := w.looks()
	w.refusing("w1", "kubelet.running")
	w.do(toNewest, event.Failed)
	w.Hosts["w1"].Refuse = nil
	w.rollback(event.Succeeded)
	w.wantVersions(all(names, older))
	w.runBy("docker")
	w.whole()
	for name, m := range w.Hosts {
		now := m.AllState()
		for _, path := range []string{"/etc/docker/daemon.json", module.DockerUnit} {
			if d := cmp.Diff(before[name][path], now[path]); d != "" {
				t.Errorf("%s: %s has changed (-was +is):\n%s", name, path, d)
			}
		}
	}
}

// All bundles of the upgrade path must have Docker before the first host is changed.
func TestUpgradeDocker_NeedsBundlesWithDocker(t *testing.T) {
	t.Parallel()
	for name, from := range map[string][]string{"the next": {older}, "a later one": {"v1.35.6", older}} {
		t.Run(name, func(t *testing.T) {
			w := agedDocker(t, []string{"cp1", "w1"}, from[0], from[1:]...)
			w.bundled(t, false, "v1.37.1")
			_, err := w.service().Prepare(t.Context(), toNewest, nil)
			refusal(t, err, bundle.IDNoDocker)
			if err != nil && !strings.Contains(err.Error(), "slipway bundle build --kubernetes v1.37.1 --arch amd64 --runtime docker") {
				t.Errorf("the error has no remedy: %v", err)
			}
		})
	}
}
