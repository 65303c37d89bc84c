package access

import (
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
)

func TestManifest_CanBeParsed(t *testing.T) {
	text, warnings, err := newTestAccess(t).Manifest(t.Context(), ManifestRequest{
		Kubernetes: "v1.36.4", Arches: []string{"arm64", "amd64", "arm64"}, Docker: true,
		Images: []string{"docker.io/library/nginx:1.29", "docker.io/library/nginx:1.29"},
	})
	if err != nil || len(warnings) != 0 {
		t.Fatalf("%v, %v", warnings, err)
	}
	for _, want := range []string{
		"kind: BundleManifest\n", "kubernetes: v1.36.4\n", "arches:\n  - amd64\n  - arm64\n",
		"runtime: docker\n", "  etcd: 3.6.8\n", "images:\n  - docker.io/library/nginx:1.29\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	for reason, r := range map[string]ManifestRequest{
		"a version that nobody knows": {Kubernetes: "v1.2.3"},
		"no architecture":             {Arches: []string{"z80"}},
		"no image":                    {Images: []string{"nginx"}},
	} {
		_, _, err := newTestAccess(t).Manifest(t.Context(), r)
		var list diag.List
		if !errors.As(err, &list) || list[0].Hint == "" {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// The images that every bundle has are left out.
func TestManifest_HasNodesAndPodImagesOfCluster(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	node := func(name, version, arch string) string {
		return `{"kind":"Node","apiVersion":"v1","metadata":{"name":"` + name + `"},"status":{"nodeInfo":{"kubeletVersion":"` + version +
			`","architecture":"` + arch + `","containerRuntimeVersion":"containerd://2.2.8"}}}`
	}
	pod := func(name, image, id string) string {
		return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"` + image +
			`"}]},"status":{"containerStatuses":[{"name":"c","imageID":"` + id + `"}]}}`
	}
	answers := map[string]string{
		"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1","items":[` + node("a", "v1.36.4", "amd64") + "," +
			node("b", "v1.35.6", "arm64") + `]}`,
		"/api/v1/pods": `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Join([]string{
			pod("1", "registry.k8s.io/kube-apiserver:v1.36.4", "registry.k8s.io/kube-apiserver@"+digest),
			pod("2", "nginx:1.29", "docker.io/library/nginx@"+digest),
			pod("3", "quay.io/team/app@"+digest, ""),
			pod("4", "images.example.com:5000/app:v1", "sha256:0123"),
			pod("5", "busybox", ""),
			pod("6", "UPPER:case", ""),
		}, ",") + `]}`,
	}
	text, warnings, err := newTestAccess(t).Manifest(t.Context(), ManifestRequest{Kubeconfig: newTestAPI(t, answers)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := bundle.ParseWanted("it", text)
	if err != nil {
		t.Fatal(err)
	}
	want := "docker.io/library/busybox:latest docker.io/library/nginx:1.29@" + digest +
		" images.example.com:5000/app:v1 quay.io/team/app@" + digest
	if got := strings.Join(w.Images, " "); got != want {
		t.Errorf("images %s, want %s", got, want)
	}
	if w.Kubernetes != "v1.36.4" || strings.Join(w.Arches, " ") != "amd64 arm64" {
		t.Errorf("it is %s for %v", w.Kubernetes, w.Arches)
	}
	if len(warnings) != 1 || warnings[0].ID != idImageLeftOut {
		t.Errorf("warnings %v", warnings)
	}
	answers["/api/v1/pods"] = "forbidden"
	_, _, err = newTestAccess(t).Manifest(t.Context(), ManifestRequest{Kubeconfig: newTestAPI(t, answers)})
	wantRefusal(t, err, idClusterUnreadable)
}
