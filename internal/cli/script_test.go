package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"slipway": func() {
		streams, env := CurrentProcess()
		env.Now = func() time.Time { return epoch.Add(5 * time.Minute) }
		env.Hostname = func() (string, error) { return "Box_7.example.org", nil }
		os.Exit(Main(context.Background(), os.Args[1:], streams, env, scenario))
	}})
}

// scenario returns the fake that the file in FAKE describes.
func scenario(context.Context, Settings) (Service, error) {
	b, err := os.ReadFile(os.Getenv("FAKE"))
	if err != nil {
		return nil, err
	}
	f := new(fake)
	return service{f}, json.Unmarshal(b, f)
}

// TestCommands_BehaveAsInScripts runs the scripts in testdata/script, which check the
// output and exit codes of commands.
func TestCommands_BehaveAsInScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			for k, v := range map[string]string{
				"SLIPWAY_HOME": e.WorkDir + "/home", "SLIPWAY_CACHE": e.WorkDir + "/cache", "HOME": e.WorkDir + "/user",
				"FAKE": e.WorkDir + "/fake.json", "TERM": "dumb", "KUBECONFIG": "", "SUDO_UID": "", "XDG_DATA_HOME": "", "XDG_CACHE_HOME": "",
			} {
				e.Setenv(k, v)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": checkExitCode,
			"bundles": func(ts *testscript.TestScript, _ bool, _ []string) {
				setUpBundles(t, ts)
			},
		},
	})
}

// checkExitCode runs a program and checks its exit code: exits 2 slipway plan.
func checkExitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// setUpBundles builds bundles of two versions in the cache, and serves a registry whose
// CA and credentials are in the files ca.crt and login.json.
func setUpBundles(t *testing.T, ts *testscript.TestScript) {
	site := bundletest.NewSite(t, "v1.36.4")
	for _, version := range []string{"v1.36.4", "v1.37.1"} {
		_, err := bundle.Build(t.Context(), bundle.BuildOptions{
			Kubernetes: version, Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: ts.Getenv("SLIPWAY_CACHE"),
			Releases: bundletest.LoadCatalogue(t), Upstream: site.Options(),
		})
		ts.Check(err)
	}
	reg := bundletest.NewRegistry(t, true)
	ts.Setenv("REGISTRY", reg.Host)
	for name, from := range map[string]string{"ca.crt": reg.At.CA, "login.json": reg.At.Credentials} {
		data, err := os.ReadFile(from)
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(name), data, 0o600))
	}
}
