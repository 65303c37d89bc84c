package addonsource

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/testutil/golden"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"

// writeTree writes files below a new directory.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// chartArchive is a chart as repositories have it.
func chartArchive(t *testing.T, name string, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for file, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name + "/" + file, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// webChart is a chart with a kind, a hook, and values.
func webChart(more map[string]string) map[string]string {
	files := map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.2.3\n",
		"values.yaml": "replicas: 1\nname: web\nmore: {a: b}\n",
		"templates/all.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}-{{ .Values.name }}, namespace: {{ .Release.Namespace }}}
spec: {replicas: {{ .Values.replicas }}}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Values.name }}, annotations: {kube: "{{ .Capabilities.KubeVersion.Version }}", ` +
			`crd: "{{ .Capabilities.APIVersions.Has "example.com/v1/Thing" }}", more: "{{ keys .Values.more | sortAlpha }}"}}
`,
		"templates/hook.yaml": `apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {helm.sh/hook: "pre-install, pre-upgrade", helm.sh/hook-weight: "5", ` +
			`helm.sh/hook-delete-policy: hook-succeeded}}
---
apiVersion: v1
kind: Pod
metadata: {name: try, annotations: {helm.sh/hook: test}}
`,
		"templates/NOTES.txt": "thank you\n",
		"crds/thing.yaml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true}]}
`,
	}
	for name, text := range more {
		files[name] = text
	}
	return files
}

func loadAddons(t *testing.T, list ...v1alpha1.Addon) ([]Addon, diag.List, error) {
	t.Helper()
	return Loader{Cache: t.TempDir(), Kubernetes: "v1.37.1"}.Load(t.Context(), list)
}

// refNames returns the objects and hooks of an add-on as text, for tables.
func refNames(a Addon) (out []string) {
	if a.Namespace != nil {
		out = append(out, "("+RefOf(a.Namespace).String()+")")
	}
	for _, o := range a.Objects {
		out = append(out, RefOf(o).String())
	}
	for _, h := range a.Hooks {
		out = append(out, fmt.Sprintf("%v %d %s", h.Phases, h.Weight, RefOf(h.Object)))
	}
	return out
}

func TestLoad_ReadsManifestsInOrder(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"b.yaml": fmt.Sprintf(configMap, "b") + "---\n" + fmt.Sprintf(configMap, "{{ kept }}"),
		"a.json": `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Namespace", ` +
			`"metadata": {"name": "shop", "uid": "x"}, "status": {}}]}`,
		"c/d.yaml": fmt.Sprintf(configMap, "d"), "README.md": "no",
	})
	got, warnings, err := loadAddons(t,
		v1alpha1.Addon{Name: "shop", Namespace: "shop", Manifests: []string{filepath.Join(dir, "c", "d.yaml"), dir}})
	if err == nil || len(warnings) > 0 {
		t.Fatalf("a template was accepted as a manifest: %v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.yaml"), fmt.Appendf(nil, configMap, "b"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, err = loadAddons(t, v1alpha1.Addon{Name: "shop", Namespace: "shop", Manifests: []string{filepath.Join(dir, "c", "d.yaml"), dir}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ConfigMap shop/d", "Namespace shop", "ConfigMap shop/b"}, refNames(got[0])); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, o := range got[0].Objects {
		if o.GetLabels()[Label] != "shop" || o.GetUID() != "" || o.Object["status"] != nil {
			t.Errorf("%v", o.Object)
		}
	}
	if !got[0].Wait || got[0].Timeout != DefaultTimeout {
		t.Errorf("%+v", got[0])
	}
}

func TestLoad_RendersChart(t *testing.T) {
	dir := writeTree(t, webChart(nil))
	values := filepath.Join(writeTree(t, map[string]string{"v.yaml": "replicas: 2\nname: file\n"}), "v.yaml")
	a := v1alpha1.Addon{
		Name: "front", Namespace: "front", Chart: &v1alpha1.Chart{Path: dir},
		ValuesFiles: []string{values}, Values: map[string]any{"name": "shop", "more": map[string]any{"a": nil, "c": 1}},
	}
	got, warnings, err := loadAddons(t, a)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := []string{
		"(Namespace front)", "CustomResourceDefinition things.example.com", "Service front/shop", "Deployment front/front-shop",
		"[pre-install pre-upgrade] 5 Job front/migrate",
	}
	if d := cmp.Diff(want, refNames(got[0])); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	annotations := got[0].Objects[1].GetAnnotations()
	if d := cmp.Diff(map[string]string{"kube": "v1.37.1", "crd": "false", "more": "[c]"}, annotations); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got[0].Objects[2].Object["spec"].(map[string]any)["replicas"] != int64(2) || !got[0].Hooks[0].Goes {
		t.Errorf("%v", got[0].Objects[2].Object)
	}

	// Kinds of add-ons before are there; the same twice gives the same.
	crd := v1alpha1.Addon{Name: "kinds", Manifests: []string{filepath.Join(dir, "crds", "thing.yaml")}}
	without := writeTree(t, webChart(map[string]string{"crds/thing.yaml": ""}))
	a.Chart = &v1alpha1.Chart{Path: without}
	both, _, err := loadAddons(t, crd, a)
	if err != nil {
		t.Fatal(err)
	}
	if both[1].Objects[0].GetAnnotations()["crd"] != "true" {
		t.Errorf("%v", both[1].Objects[0].Object)
	}
	again, _, err := loadAddons(t, crd, a)
	if err != nil || again[1].Digest != both[1].Digest || again[1].Digest == both[0].Digest {
		t.Errorf("digests %s, %s: %v", again[1].Digest, both[1].Digest, err)
	}
}

// Load reports all problems at once, each with its file or template.
func TestLoad_NamesFileOfEachProblem(t *testing.T) {
	chart := func(more map[string]string) v1alpha1.Addon {
		return v1alpha1.Addon{Name: "web", Chart: &v1alpha1.Chart{Path: writeTree(t, webChart(more))}}
	}
	values := chart(nil)
	values.ValuesFiles = []string{filepath.Join(writeTree(t, map[string]string{"v.yaml": "a: 1\na: 2\n"}), "v.yaml")}
	file := func(name, text string) v1alpha1.Addon {
		return v1alpha1.Addon{Name: "m", Manifests: []string{filepath.Join(writeTree(t, map[string]string{name: text}), name)}}
	}
	pinned := file("a.yaml", "")
	pinned.Manifests = nil
	pinned.Chart = &v1alpha1.Chart{Path: filepath.Join(writeTree(t, map[string]string{"c.tgz": "x"}), "c.tgz"), Digest: digestOf([]byte("y"))}
	others := t.TempDir() // it has an unreadable link, which is not the problem
	if err := os.Symlink("nowhere", filepath.Join(others, "a")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		a    v1alpha1.Addon
		id   string
		says []string
	}{
		{
			"a directory of others",
			v1alpha1.Addon{Name: "k", Chart: &v1alpha1.Chart{Path: others}},
			IDUnusable,
			[]string{"the chart has no Chart.yaml"},
		},
		{"not YAML", file("a.yaml", "a: [\n"), IDUnusable, []string{"a.yaml", "document 1"}},
		{"no object", file("a.yaml", "---\n"), IDUnusable, []string{"no objects"}},
		{"no name", file("a.yaml", "apiVersion: v1\nkind: Service\n"), IDUnusable, []string{"metadata.name"}},
		{
			"a kustomization",
			v1alpha1.Addon{Name: "k", Manifests: []string{writeTree(t, map[string]string{"kustomization.yaml": "resources: []\n"})}},
			IDUnusable,
			[]string{"kustomization"},
		},
		{"an empty directory", v1alpha1.Addon{Name: "k", Manifests: []string{t.TempDir()}}, IDUnusable, []string{"no manifest"}},
		{"no chart", v1alpha1.Addon{Name: "k", Chart: &v1alpha1.Chart{Path: t.TempDir()}}, IDUnusable, []string{"Chart.yaml"}},
		{"another archive", pinned, IDChecksum, []string{"c.tgz"}},
		{
			"a template that does not parse", chart(map[string]string{"templates/bad.yaml": "a: {{ if }}\n"}), IDRender,
			[]string{"web/templates/bad.yaml:1"},
		},
		{
			"a template that fails", chart(map[string]string{"templates/bad.yaml": "a: b\nc: {{ required \"say who\" .Values.who }}\n"}),
			IDRender,
			[]string{"web/templates/bad.yaml:2", "say who"},
		},
		{
			"a template that makes no YAML", chart(map[string]string{"templates/bad.yaml": "a: {{ .Values.name }}: b\n"}),
			IDRender,
			[]string{"web/templates/bad.yaml"},
		},
		{
			"values that the schema refuses",
			chart(map[string]string{"values.schema.json": `{"properties": {"replicas": {"type": "string"}}}`}), IDRender,
			[]string{"replicas"},
		},
		{
			"a password by chance",
			chart(map[string]string{"templates/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: " +
				"p}\nstringData: {p: {{ randAlphaNum 20 }}}\n"}),
			IDRandom,
			[]string{"web/templates/secret.yaml"},
		},
		{
			"another Kubernetes",
			chart(map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\nkubeVersion: '<1.30'\n"}),
			IDRender,
			[]string{"<1.30", "v1.37.1"},
		},
		{
			"a missing chart",
			chart(map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\ndependencies: [{name: " +
				"base, version: 1.0.0, repository: 'https://example.com'}]\n"}),
			IDUnusable,
			[]string{"base"},
		},
		{
			"a library", chart(map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\ntype: library\n"}),
			IDUnusable,
			[]string{"library"},
		},
		{"values twice", values, IDUnusable, []string{"v.yaml"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := loadAddons(t, tc.a, file("b.yaml", "a"))
			var list diag.List
			if !errors.As(err, &list) || len(list) != 2 || list[0].ID != tc.id {
				t.Fatalf("got error %v", err)
			}
			if list[1].Path != "spec.addons[1].manifests[0]" {
				t.Errorf("the second problem is at %s", list[1].Path)
			}
			for _, s := range tc.says {
				if !strings.Contains(list[0].Message, s) {
					t.Errorf("%q is missing in: %s", s, list[0].Message)
				}
			}
		})
	}
	twice := file("a.yaml", fmt.Sprintf(configMap, "x"))
	other := twice
	other.Name = "n"
	if _, _, err := loadAddons(t, twice, other); err == nil || !strings.Contains(err.Error(), IDTwice) {
		t.Errorf("an object of two add-ons: %v", err)
	}
}

// Hooks that run around deletion are separate from the applied objects. A warning names
// each hook that is not run.
func TestLoad_SeparatesDeleteHooksFromObjects(t *testing.T) {
	job := func(name, annotations string) string {
		return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\n---\n"
	}
	of := func(more map[string]string) (Addon, diag.List) {
		t.Helper()
		got, warnings, err := loadAddons(t,
			v1alpha1.Addon{Name: "web", Namespace: "shop", Chart: &v1alpha1.Chart{Path: writeTree(t, webChart(more))}})
		if err != nil {
			t.Fatal(err)
		}
		return got[0], warnings
	}
	text := job("late",
		`helm.sh/hook: "pre-delete,post-delete", helm.sh/hook-weight: "7", helm.sh/hook-delete-policy: "before-hook-creation,hook-succeeded"`) +
		job("early", `helm.sh/hook: post-delete, helm.sh/hook-weight: "-3"`) + job("both", `helm.sh/hook: "pre-delete,post-install"`) +
		job("back", `helm.sh/hook: "post-rollback"`) +
		"apiVersion: v1\nkind: Secret\nmetadata: {name: key, annotations: {helm.sh/hook: pre-delete}}\n"
	a, warnings := of(map[string]string{"templates/bye.yaml": text})
	if len(warnings) != 1 || warnings[0].ID != IDChartHook || !strings.HasSuffix(warnings[0].Message, "not run: post-rollback (Job back)") {
		t.Errorf("%v", warnings)
	}
	if len(a.Hooks) != 2 || !a.Hooks[0].RunsIn(PostInstall) || a.Hooks[0].RunsIn(PreInstall) {
		t.Errorf("%+v", a.Hooks)
	}
	var got []string
	for _, h := range a.Last {
		got = append(got, fmt.Sprintf("%s %d %v %v %s", RefOf(h.Object), h.Weight, h.Phases, h.Goes, h.Object.GetLabels()[Label]))
	}
	if d := cmp.Diff([]string{
		"Job shop/early -3 [post-delete] false web", "Secret shop/key 0 [pre-delete] false web",
		"Job shop/both 0 [pre-delete post-install] false web", "Job shop/late 7 [pre-delete post-delete] true web",
	}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	t.Run("packed", func(t *testing.T) {
		raw, err := a.DeleteHooks().Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeDeleteHooks(raw)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := back.IsSame(a.DeleteHooks()); !same || err != nil || back.Timeout != DefaultTimeout {
			t.Errorf("%+v, %v", back, err)
		}
		less := back
		less.Hooks = less.Hooks[1:]
		if same, _ := less.IsSame(back); same {
			t.Error("hooks with fewer objects count as the same")
		}
		var bomb bytes.Buffer
		z := gzip.NewWriter(&bomb)
		_, err = io.CopyN(z, zeros{}, bounded.Document+1)
		if err := errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		var over *bounded.LimitError
		if _, err := DecodeDeleteHooks(bomb.Bytes()); !errors.As(err, &over) {
			t.Errorf("%d bytes that unpack to more than the limit: %v", bomb.Len(), err)
		}
		for name, bad := range map[string][]byte{"nothing": nil, "no gzip": []byte("{}"), "cut": raw[:len(raw)/2]} {
			if _, err := DecodeDeleteHooks(bad); err == nil {
				t.Errorf("%s: it is read", name)
			}
		}
	})

	t.Run("the rest is as without them", func(t *testing.T) {
		bye := map[string]string{"templates/bye.yaml": job("late", "helm.sh/hook: pre-delete")}
		with, _ := of(bye)
		without, _ := of(nil)
		if with.Digest != without.Digest || len(without.Last) > 0 || without.DeleteHooks().Timeout != 0 {
			t.Errorf("%+v", without.DeleteHooks())
		}
	})
}

// Load refuses hooks that do not fit into a Secret before it changes the cluster.
func TestLoad_RefusesHooksTooLargeForSecret(t *testing.T) {
	noise := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	_, _, err := loadAddons(t, v1alpha1.Addon{Name: "web", Chart: &v1alpha1.Chart{Path: writeTree(t, webChart(map[string]string{
		"noise": hex.EncodeToString(noise),
		"templates/bye.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: bye, annotations: {helm.sh/hook: " +
			"post-delete}}\nstringData: {noise: {{ .Files.Get \"noise\" }}}\n",
	}))}})
	if err == nil || !strings.Contains(err.Error(), "after compression, but the cluster can store only 1024") {
		t.Errorf("got error %v", err)
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A site serves files and records the requests.
type site struct {
	*httptest.Server
	files map[string][]byte
	asked []string
}

func newSite(t *testing.T) *site {
	s := &site{files: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked = append(s.asked, r.URL.Path)
		text, ok := s.files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestLoad_DownloadsAgainUnlessPinned(t *testing.T) {
	s := newSite(t)
	s.files["/a.yaml"] = fmt.Appendf(nil, configMap, "a")
	l := Loader{Cache: t.TempDir(), Kubernetes: "v1.37.1"}
	plain := v1alpha1.Addon{Name: "a", Manifests: []string{s.URL + "/a.yaml"}}
	pinned := v1alpha1.Addon{Name: "a", Manifests: []string{s.URL + "/a.yaml@" + digestOf(s.files["/a.yaml"])}}
	got, _, err := l.Load(t.Context(), []v1alpha1.Addon{plain})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{s.URL + "/a.yaml " + digestOf(s.files["/a.yaml"])}, got[0].Sources); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	id := func(a v1alpha1.Addon) string {
		_, _, err := l.Load(t.Context(), []v1alpha1.Addon{a})
		var list diag.List
		if !errors.As(err, &list) {
			t.Fatalf("got error %v", err)
		}
		return list[0].ID
	}
	s.files["/a.yaml"] = fmt.Appendf(nil, configMap, "b")
	if _, _, err := l.Load(t.Context(), []v1alpha1.Addon{pinned}); err != nil {
		t.Errorf("loading pinned content from the cache: %v", err)
	}
	if got, _, err = l.Load(t.Context(), []v1alpha1.Addon{plain}); err != nil || got[0].Objects[0].GetName() != "b" {
		t.Errorf("downloading changed content: %v", err)
	}
	if got := id(pinned); got != IDChecksum {
		t.Errorf("pinned content that has changed: %s", got)
	}
	delete(s.files, "/a.yaml")
	if got := id(plain); got != IDDownload {
		t.Errorf("content that no longer exists: %s", got)
	}
	s.Close()
	got, warnings, err := l.Load(t.Context(), []v1alpha1.Addon{plain})
	if err != nil || len(warnings) != 1 || warnings[0].ID != IDOffline || got[0].Objects[0].GetName() != "b" {
		t.Errorf("offline: %v, %v", warnings, err)
	}
	if got := id(v1alpha1.Addon{Name: "a", Manifests: []string{s.URL + "/other.yaml"}}); got != IDDownload {
		t.Errorf("offline, never seen: %s", got)
	}
}

func TestLoad_DownloadsChartVersionOnce(t *testing.T) {
	s := newSite(t)
	text := chartArchive(t, "web", webChart(nil))
	s.files["/x/charts/web-1.2.3.tgz"] = text
	list := func(digest string) {
		s.files["/x/index.yaml"] = []byte("entries:\n  web:\n  - {version: 1.3.0, urls: [\"" + s.URL +
			"/gone.tgz\"]}\n  - {version: 1.2.3, urls: [charts/web-1.2.3.tgz], digest: " + digest + "}\n")
	}
	list(strings.TrimPrefix(digestOf(text), "sha256:"))
	l := Loader{Cache: t.TempDir(), Kubernetes: "v1.37.1"}
	a := v1alpha1.Addon{Name: "web", Chart: &v1alpha1.Chart{Repository: s.URL + "/x/", Name: "web", Version: "1.2.3"}}
	for range 2 {
		got, _, err := l.Load(t.Context(), []v1alpha1.Addon{a})
		if err != nil {
			t.Fatal(err)
		}
		if len(got[0].Objects) != 3 || got[0].Sources[0] != s.URL+"/x/web:1.2.3 "+digestOf(text) {
			t.Errorf("%v %v", refNames(got[0]), got[0].Sources)
		}
	}
	if d := cmp.Diff([]string{"/x/index.yaml", "/x/charts/web-1.2.3.tgz"}, s.asked); d != "" {
		t.Errorf("a version is downloaded once (-want +got):\n%s", d)
	}
	list(strings.Repeat("0", 64))
	for name, tc := range map[string]struct {
		chart v1alpha1.Chart
		id    string
		hint  string
	}{
		"another archive than announced": {v1alpha1.Chart{Name: "web", Version: "1.2.3"}, IDChecksum, ""},
		"an unknown version":             {v1alpha1.Chart{Name: "web", Version: "2.0.0"}, IDDownload, "1.3.0, 1.2.3"},
		"an archive that is not there":   {v1alpha1.Chart{Name: "web", Version: "1.3.0"}, IDDownload, ""},
		"an unknown chart":               {v1alpha1.Chart{Name: "other", Version: "1.2.3"}, IDDownload, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tc.chart.Repository = s.URL + "/x"
			_, _, err := loadAddons(t, v1alpha1.Addon{Name: "web", Chart: &tc.chart})
			var list diag.List
			if !errors.As(err, &list) || list[0].ID != tc.id || !strings.Contains(list[0].Hint, tc.hint) {
				t.Errorf("got error %v", err)
			}
		})
	}
}

// TestLoad_DoesNotKeepInvalidChartFromRepository: an error page of a proxy and a partial
// archive are not kept in the cache. A damaged copy in the cache is replaced.
func TestLoad_DoesNotKeepInvalidChartFromRepository(t *testing.T) {
	s := newSite(t)
	text := chartArchive(t, "web", webChart(nil))
	s.files["/index.yaml"] = []byte("entries: {web: [{version: 1.2.3, urls: [web.tgz]}]}")
	l := Loader{Cache: t.TempDir(), Kubernetes: "v1.37.1"}
	list := []v1alpha1.Addon{{Name: "web", Chart: &v1alpha1.Chart{Repository: s.URL, Name: "web", Version: "1.2.3"}}}
	for _, bad := range [][]byte{[]byte("<html>log in</html>"), text[:len(text)/2], nil} {
		s.files["/web.tgz"] = bad
		if _, _, err := l.Load(t.Context(), list); err == nil || !strings.Contains(err.Error(), IDUnusable) {
			t.Errorf("for %d bytes: %v", len(bad), err)
		}
	}
	s.files["/web.tgz"] = text
	if _, _, err := l.Load(t.Context(), list); err != nil {
		t.Errorf("after the repository has the version: %v", err)
	}
	if err := os.WriteFile((&loadRun{Loader: l}).cachePath(s.URL+"/web:1.2.3"), text[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Load(t.Context(), list); err != nil {
		t.Errorf("with a damaged copy: %v", err)
	}
}

// TestLoad_RefusesOversizedLayer: a layer above the limit is an error and is not
// truncated.
func TestLoad_RefusesOversizedLayer(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(discardLogger(t))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(make([]byte, maxManifest+1), chartLayer))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host+"/charts/web:1.2.3", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	l := Loader{Cache: t.TempDir(), Kubernetes: "v1.37.1", Insecure: []string{host}}
	_, _, err = l.Load(t.Context(),
		[]v1alpha1.Addon{{Name: "web", Chart: &v1alpha1.Chart{Repository: "oci://" + host + "/charts", Name: "web", Version: "1.2.3"}}})
	if err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("got error %v", err)
	}
}

func TestLoad_PullsChartFromRegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(discardLogger(t))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	text := chartArchive(t, "web", webChart(map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3+build\n"}))
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(text, chartLayer))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host+"/charts/web:1.2.3_build", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	l := Loader{Cache: t.TempDir(), Kubernetes: "v1.37.1", Insecure: []string{host}}
	chart := func(version, digest string) []v1alpha1.Addon {
		return []v1alpha1.Addon{{
			Name:  "web",
			Chart: &v1alpha1.Chart{Repository: "oci://" + host + "/charts", Name: "web", Version: version, Digest: digest},
		}}
	}
	got, _, err := l.Load(t.Context(), chart("1.2.3+build", digestOf(text)))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(refNames(got[0]), "Service default/web") {
		t.Errorf("%v", refNames(got[0]))
	}
	if _, _, err := l.Load(t.Context(), chart("1.2.3+build", digestOf([]byte("other")))); err == nil ||
		!strings.Contains(err.Error(), IDChecksum) {
		t.Errorf("another archive than pinned: %v", err)
	}
	if _, _, err := l.Load(t.Context(), chart("2.0.0", "")); err == nil || !strings.Contains(err.Error(), IDDownload) {
		t.Errorf("an unknown version: %v", err)
	}
}

// TestLoad_SendsRegistryCredentials pulls from a registry with the credentials and
// options of the cluster file.
func TestLoad_SendsRegistryCredentials(t *testing.T) {
	store := registry.New(registry.Logger(discardLogger(t)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u+":"+p != "me:word" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(chartArchive(t, "web", webChart(nil)), chartLayer))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host+"/charts/web:1.2.3", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img, remote.WithAuth(&authn.Basic{Username: "me", Password: "word"})); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // without credentials
	list := []v1alpha1.Addon{{Name: "web", Chart: &v1alpha1.Chart{Repository: "oci://" + host + "/charts", Name: "web", Version: "1.2.3"}}}
	asked := ""
	for word, ok := range map[string]bool{"word": true, "other": false} {
		l := Loader{
			Cache: t.TempDir(), Kubernetes: "v1.37.1", Insecure: []string{host},
			Speak: func(ctx context.Context, host string) ([]remote.Option, error) {
				asked = host
				return []remote.Option{remote.WithContext(ctx), remote.WithAuth(&authn.Basic{Username: "me", Password: word})}, nil
			},
		}
		_, _, err := l.Load(t.Context(), list)
		if (err == nil) != ok || asked != host || err != nil && !strings.Contains(err.Error(), IDDownload) {
			t.Errorf("with %q, asked of %q: %v", word, asked, err)
		}
	}
}

// TestKubeStateMetrics_ReadsOnlyWhatItMeasures: a resource without a permission gives
// endless errors, and a permission without its resource is not needed.
func TestKubeStateMetrics_ReadsOnlyWhatItMeasures(t *testing.T) {
	l := Loader{
		Cache: t.TempDir(), Kubernetes: "v1.37.1",
		Images: map[string]string{"kube-state-metrics": "example.com/kube-state-metrics:v1"},
	}
	list, _, err := l.Load(t.Context(), []v1alpha1.Addon{{Name: "kube-state-metrics"}})
	if err != nil {
		t.Fatal(err)
	}
	var allowed, measured []string
	for _, o := range list[0].Objects {
		switch o.GetKind() {
		case "ClusterRole":
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				t.Fatal(err)
			}
			for _, r := range role.Rules {
				allowed = append(allowed, r.Resources...)
			}
		case "Deployment":
			var d appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
				t.Fatal(err)
			}
			for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
				if names, ok := strings.CutPrefix(arg, "--resources="); ok {
					measured = strings.Split(names, ",")
				}
			}
		}
	}
	slices.Sort(allowed)
	if d := cmp.Diff(measured, allowed); d != "" {
		t.Errorf("permissions (-measured +allowed):\n%s", d)
	}
	if slices.Contains(allowed, "secrets") || slices.Contains(allowed, "configmaps") {
		t.Error("the add-on can read the content of Secrets or ConfigMaps")
	}
}

// The bundle's add-ons, as they are without settings and with all of them.
func TestLoad_RendersBundledAddons(t *testing.T) {
	l := Loader{
		Cache: t.TempDir(), Kubernetes: "v1.37.1",
		Images: map[string]string{
			"metrics-server": "example.com/metrics-server:v1", "kube-state-metrics": "example.com/kube-state-metrics:v1",
			"local-path": "example.com/local-path:v1", "flannel": "example.com/flannel:v1",
		},
	}
	show := func(list ...v1alpha1.Addon) string {
		t.Helper()
		got, warnings, err := l.Load(t.Context(), list)
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		var b strings.Builder
		for _, a := range got {
			for _, s := range a.Sources {
				fmt.Fprintf(&b, "# %s\n", s)
			}
			for _, o := range a.Objects {
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "---\n%s", text)
			}
		}
		return b.String()
	}
	metrics, local := v1alpha1.Addon{Name: "metrics-server"}, v1alpha1.Addon{Name: "local-path"}
	golden.Check(t, "testdata/bundled.golden", show(metrics, local, v1alpha1.Addon{Name: "kube-state-metrics"}))
	l.VerifiedKubelets = true
	local.Values = map[string]any{"path": "/srv/volumes/", "default": false}
	text := show(metrics, local)
	for _, want := range []string{"--kubelet-certificate-authority=", `"/srv/volumes"`, `is-default-class: "false"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(text, "--kubelet-insecure-tls") || strings.Contains(text, "# ") {
		t.Error("the manifests turn off the verification of kubelets")
	}
	for name, values := range map[string]map[string]any{
		"unknown": {"paths": "/a"}, "relative": {"path": "a"},
		"the root": {"path": "/"}, "another type": {"default": "yes"},
	} {
		_, _, err := l.Load(t.Context(), []v1alpha1.Addon{{Name: "local-path", Values: values}})
		if err == nil || !strings.Contains(err.Error(), IDUnusable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d := cmp.Diff([]string{"metrics-server"},
		BundleImages([]v1alpha1.Addon{metrics, {Name: "local-path", Manifests: []string{"a"}}})); d != "" {
		t.Errorf("an add-on with own manifests counts as bundled (-want +got):\n%s", d)
	}
	if d := cmp.Diff(spec.BundledAddons(), slices.Sorted(maps.Keys(bundledAddons()))); d != "" {
		t.Errorf("add-ons that the file can name (-want +got):\n%s", d)
	}
}
