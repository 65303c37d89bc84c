package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/release"
)

// TestCompletion_OffersNamesFromState: arguments are completed from the state. Without
// known values, not even files are offered.
func TestCompletion_OffersNamesFromState(t *testing.T) {
	const files, noFiles = ":0", ":4"
	known, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	versions := strings.Join(known.SupportedVersions(), " ") + " :36"
	for line, want := range map[string]string{
		"plan":                          "prod dev " + noFiles,
		"apply":                         "prod dev " + noFiles,
		"resume":                        "prod dev " + noFiles,
		"retry":                         "prod dev " + noFiles,
		"rollback":                      "prod dev " + noFiles,
		"cancel":                        "prod dev " + noFiles,
		"delete cluster":                "prod dev " + noFiles,
		"precheck":                      "prod dev " + noFiles,
		"get cluster":                   "prod dev " + noFiles,
		"use":                           "prod dev " + noFiles,
		"move":                          "prod dev " + noFiles,
		"kubeconfig":                    "prod dev " + noFiles,
		"kubectl":                       "prod dev " + noFiles,
		"operations list":               "prod dev " + noFiles,
		"operations show":               operationID + " :36",
		"operations logs":               operationID + " :36",
		"operations watch":              "prod dev " + operationID + " :36",
		"plan prod":                     noFiles,
		"operations show x":             noFiles,
		"get clusters":                  noFiles,
		"create cluster":                noFiles,
		"version":                       noFiles,
		"get clusters -o":               "text json yaml " + noFiles,
		"create cluster -f":             "yaml yml json :8",
		"convert":                       "--file -f " + noFiles,
		"convert -f":                    "yaml yml json :8",
		"convert --kubernetes":          versions,
		"create config --kubernetes":    versions,
		"create cluster --kubernetes":   versions,
		"sandbox create x --kubernetes": versions,
		"sandbox create":                noFiles,
		"sandbox exec":                  "dev-1 " + noFiles,
		"sandbox exec dev-1":            files,
		"sandbox start":                 "dev dev-1 " + noFiles,
		"sandbox kill":                  "dev-1 " + noFiles,
		"sandbox kill dev-1":            noFiles,
		"sandbox delete":                "dev " + noFiles,
		"bundle build --source":         "auto upstream modules " + noFiles,
		"bundle verify":                 "v1.37.1 " + files,
		"bundle verify x":               noFiles,
	} {
		t.Run(line, func(t *testing.T) {
			s := newTestTerminal(t, "")
			records := filepath.Join(s.env.Getenv("SLIPWAY_HOME"), "sandboxes", "dev")
			cached := filepath.Join(s.env.Getenv("SLIPWAY_CACHE"), "bundles", "v1.37.1_amd64")
			err := errors.Join(
				os.MkdirAll(records, 0o700), os.WriteFile(filepath.Join(records, "sandbox.json"), []byte(sandboxRecord), 0o600),
				os.MkdirAll(cached, 0o700), os.WriteFile(filepath.Join(cached, "oci-layout"), nil, 0o600),
			)
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{"__completeNoDesc"}, append(strings.Fields(line), "")...)
			if code := s.run(t, &fake{Clusters: []string{"prod", "dev"}, History: "failed"}, args...); code != exitDone {
				t.Fatalf("exit code %d: %s", code, s.err.String())
			}
			if d := cmp.Diff(want, strings.Join(strings.Fields(s.out.String()), " ")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
