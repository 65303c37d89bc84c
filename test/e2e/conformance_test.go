//go:build e2e && long

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/bundle/source/modules"
	"slipway.dev/slipway/internal/release"
)

// These run the conformance tests of Kubernetes, by the group that owns them. The tests of
// sig-node, whose probes take minutes each, are in two parts.

func TestLongConformanceNetwork(t *testing.T)      { runConformance(t, "sig-network", 1, 1) }
func TestLongConformanceApps(t *testing.T)         { runConformance(t, "sig-apps", 1, 1) }
func TestLongConformanceAuth(t *testing.T)         { runConformance(t, "sig-auth", 1, 1) }
func TestLongConformanceAPIMachinery(t *testing.T) { runConformance(t, "sig-api-machinery", 1, 1) }
func TestLongConformanceNode1(t *testing.T)        { runConformance(t, "sig-node", 1, 2) }
func TestLongConformanceNode2(t *testing.T)        { runConformance(t, "sig-node", 2, 2) }
func TestLongConformanceScheduling(t *testing.T)   { runConformance(t, "sig-scheduling", 1, 1) }

const (
	// conformanceProcs is how many tests run at once: they wait more than they compute.
	conformanceProcs = 4
	// conformanceTime is how long the tests of one scenario may take.
	conformanceTime = 20 * time.Minute
)

// runConformance runs one part of a group's conformance tests on a control plane and two
// workers. The images of the tests come from the cluster's own registry.
func runConformance(t *testing.T, sig string, part, parts int) {
	u := newUser(t)
	u.prepareBundles(t, testedVersion())
	begin := time.Now()
	suite := buildSuite(t, filepath.Join(u.home, "conformance"))
	t.Logf("the tests and their images are at hand after %.0f s", time.Since(begin).Seconds())
	all, err := listedTests(suite.askProgram(t, "--list-conformance-tests"), sig)
	if err != nil {
		t.Fatal(err)
	}
	chosen, left := chooseTests(all, part, parts)

	cluster := "e2e-conf-" + strings.TrimPrefix(sig, "sig-")[:3]
	file := u.createMachines(t, cluster, 3)
	var address string
	editSpec(t, file, func(spec map[string]any) {
		first := spec["hosts"].([]any)[0].(map[string]any)
		first["roles"], address = append(first["roles"].([]any), "registry"), first["address"].(string)
	})
	u.createCluster(t, file)
	suite.pushImages(t, u.ownRegistry(t, cluster, address+":5000"))

	begin = time.Now()
	results := suite.runTests(t, u, cluster, chosen)
	took := time.Since(begin)
	for _, fault := range judgeTests(chosen, results) {
		t.Error(fault)
	}
	passed := 0
	for _, r := range results {
		if r.Status == "passed" {
			passed++
			continue
		}
		t.Logf("log of %s:\n%s", r.Name, textTail(r.Log))
	}
	t.Logf("figure: %s: %d of %d conformance tests ran in %.0f s, %d passed%s", sig, len(results), len(all),
		took.Seconds(), passed, ofParts(part, parts))
	for _, l := range left {
		t.Logf("figure: left out: %s: %s", l.name, l.reason)
	}
	u.nothingLeft(t, cluster)
	u.waitForEmptyPlan(t, file)
	u.mustExit(t, 0, "delete", "cluster", cluster, "--yes", "--allow-removal")
}

func ofParts(part, parts int) string {
	if parts == 1 {
		return ""
	}
	return fmt.Sprintf(", part %d of %d", part, parts)
}

// nothingLeft wants the tests to have deleted their namespaces.
func (u *user) nothingLeft(t *testing.T, cluster string) {
	t.Helper()
	eventually(t, 3*time.Minute, "the tests' namespaces to be gone", func() error {
		names := strings.Fields(u.mustKubectl(t, cluster, "get", "namespaces", "-l", "e2e-framework", "-o", "name"))
		if len(names) > 0 {
			return errors.New(strings.Join(names, " "))
		}
		return nil
	})
}

// A suite is the conformance tests of a version, unpacked in a directory.
type suite struct {
	dir    string
	images map[string]v1.Image
}

// buildSuite compiles the tests and their images, or takes them from the cache.
func buildSuite(t *testing.T, dir string) *suite {
	t.Helper()
	catalogue, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	r, err := catalogue.ResolveVersion(testedVersion())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	parts, err := modules.NewConformance(modules.Options{Cache: cacheDir()}).Parts(ctx,
		source.Request{Release: r, Arches: []string{runtime.GOARCH}})
	if err != nil {
		t.Fatalf("building the conformance tests: %v", err)
	}
	s := &suite{dir: dir, images: map[string]v1.Image{}}
	for _, i := range parts.Images {
		s.images[i.Name] = i.Image
	}
	for _, c := range parts.Components {
		if c.Name == modules.ConformanceTests {
			if err := unpackTar(c.File.Path, dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// unpackTar writes the files of a gzip'd tar into a directory.
func unpackTar(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		out, err := os.OpenFile(filepath.Join(dir, path.Base(h.Name)), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, tr)
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}

// askProgram returns what the test program prints about itself.
func (s *suite) askProgram(t *testing.T, arg string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.dir, "e2e.test"), arg)
	cmd.Dir = s.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("e2e.test %s: %v: %s", arg, err, textTail(stderr.String()))
	}
	return string(out)
}

// pushImages puts the images into a registry, under the names that tests use.
func (s *suite) pushImages(t *testing.T, reg *ownRegistry) {
	t.Helper()
	options := []remote.Option{
		remote.WithContext(t.Context()), remote.WithTransport(reg.transport),
		remote.WithAuth(&authn.Basic{Username: "slipway", Password: reg.word}),
	}
	for _, ref := range testImages(s.askProgram(t, "--list-images")) {
		base, _, _ := strings.Cut(path.Base(ref), ":")
		image, ok := s.images[base]
		if !ok {
			continue
		}
		// Two versions of an image differ, as tests expect of them.
		conf, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		conf = conf.DeepCopy()
		conf.Config.Labels = map[string]string{"slipway.dev/stands-for": ref}
		if image, err = mutate.ConfigFile(image, conf); err != nil {
			t.Fatal(err)
		}
		to, err := name.ParseReference(reg.host + "/" + ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(to, image, options...); err != nil {
			t.Fatalf("pushing %s: %v", ref, err)
		}
	}
}

// runTests runs tests on a cluster and returns the reported result of each.
func (s *suite) runTests(t *testing.T, u *user, cluster string, tests []string) []testResult {
	t.Helper()
	config := filepath.Join(s.dir, "kubeconfig")
	if err := os.WriteFile(config, []byte(u.mustRun(t, "kubeconfig", cluster)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--procs", fmt.Sprint(conformanceProcs), "--timeout", conformanceTime.String(), "--no-color",
		"--seed", "1", // the same order each time
		"--output-dir", s.dir, "--junit-report", "junit.xml",
	}
	for _, name := range tests {
		args = append(args, "--focus", focusOn(name))
	}
	args = append(args, filepath.Join(s.dir, "e2e.test"), "--",
		"--provider=skeleton", "--kubeconfig="+config, "--kubectl-path="+filepath.Join(s.dir, "kubectl"))
	log, err := os.Create(filepath.Join(logDir(t), cluster+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), conformanceTime+2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "ginkgo"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), "HOME="+u.home, "KUBECONFIG=")
	cmd.WaitDelay = time.Minute
	ended := testPrograms.runInGroup(cmd) // the report lists the failed tests
	text, err := os.ReadFile(filepath.Join(s.dir, "junit.xml"))
	if err != nil {
		out, _ := os.ReadFile(log.Name())
		t.Fatalf("there is no report: %v (ginkgo: %v)\n%s", err, ended, textTail(string(out)))
	}
	results, err := readReport(text)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// logDir returns the directory that keeps the log of the tests after this run.
func logDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("SLIPWAY_E2E_LOGS"); dir != "" {
		return dir
	}
	return t.TempDir()
}
