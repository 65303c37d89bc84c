package cli

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/cli/view"
)

// formatted is a command line to run with other output formats.
type formatted struct {
	args []string
	want int // exit code
}

// formattedCommands holds all commands, by name.
func formattedCommands(t *testing.T, dir string) map[string][]formatted {
	file := filepath.Join(dir, "prod.yaml")
	if err := os.WriteFile(file, []byte(prodFile), 0o600); err != nil {
		t.Fatal(err)
	}
	build := []string{"--source", "upstream"}
	for name, url := range bundletest.NewSite(t).Options().Sites {
		build = append(build, "--site", name+"="+url)
	}
	out := func(name string) string { return filepath.Join(dir, name) }
	return map[string][]formatted{
		"create config":         {{[]string{"prod"}, exitDone}, {[]string{"prod", "--out", out("config")}, exitDone}},
		"create cluster":        {{[]string{"-f", file, "-y"}, exitDone}, {[]string{"-f", file}, exitRefused}},
		"plan":                  {{[]string{"-f", file}, exitDone}, {[]string{"-f", file, "--out", out("plan")}, exitDone}},
		"apply":                 {{[]string{"-f", file, "-y"}, exitDone}},
		"resume":                {{[]string{"prod"}, exitDone}},
		"rollback":              {{[]string{"prod", "-y"}, exitDone}},
		"cancel":                {{[]string{"prod"}, exitDone}},
		"delete cluster":        {{[]string{"prod", "-y"}, exitDone}},
		"init os":               {{[]string{"-f", file, "-y"}, exitDone}},
		"init registry":         {{[]string{"-f", file, "-y"}, exitDone}},
		"create manifest":       {{nil, exitRefused}},
		"precheck":              {{[]string{"prod"}, exitRefused}},
		"get clusters":          {{nil, exitDone}},
		"get cluster":           {{[]string{"prod"}, exitDone}},
		"use":                   {{nil, exitDone}, {[]string{"prod"}, exitDone}},
		"certs check":           {{[]string{"prod"}, exitDone}},
		"certs renew":           {{[]string{"prod", "-y"}, exitDone}, {[]string{"prod"}, exitRefused}},
		"cluster-info":          {{[]string{"prod"}, exitDone}},
		"etcd members":          {{[]string{"prod"}, exitDone}},
		"etcd health":           {{[]string{"prod"}, exitDone}},
		"etcd snapshot":         {{[]string{"prod"}, exitDone}},
		"etcd snapshots":        {{nil, exitDone}},
		"etcd drill":            {{[]string{"prod"}, exitDone}},
		"etcd defrag":           {{[]string{"prod", "-y"}, exitDone}},
		"etcd rescue":           {{[]string{"prod", "-y", "--lost", "w1"}, exitDone}},
		"etcd restore":          {{[]string{"prod", "-y", "--from", "x.tar"}, exitDone}},
		"dump":                  {{[]string{"prod", "--out", out("dump")}, exitDone}, {[]string{"prod", "--out", file}, exitRefused}},
		"exec":                  {{[]string{"prod@all", "--", "true"}, exitDone}, {[]string{"prod@all"}, exitRefused}},
		"cp":                    {{[]string{file, "prod@all:/tmp"}, exitDone}, {[]string{"a", "b"}, exitRefused}},
		"ssh":                   {{[]string{"prod@w1", "--", "true"}, exitRefused}},
		"operations list":       {{nil, exitDone}},
		"operations show":       {{[]string{operationID}, exitDone}, {[]string{operationID, "--failed"}, exitDone}},
		"operations logs":       {{[]string{operationID}, exitDone}},
		"operations watch":      {{[]string{operationID}, exitFailed}},
		"kubeconfig":            {{nil, exitDone}, {[]string{"--merge"}, exitDone}, {[]string{"--out", out("kubeconfig")}, exitDone}},
		"kubectl":               {{[]string{"prod", "--", "get", "nodes"}, exitRefused}},
		"sandbox create":        {{[]string{"No_Name"}, exitRefused}},
		"sandbox list":          {{nil, exitDone}},
		"sandbox ssh":           {{[]string{"dev-9"}, exitRefused}},
		"sandbox exec":          {{[]string{"dev-9", "--", "true"}, exitRefused}},
		"sandbox start":         {{[]string{"dev-9"}, exitRefused}},
		"sandbox stop":          {{[]string{"dev-9"}, exitRefused}},
		"sandbox kill":          {{[]string{"dev-9"}, exitRefused}},
		"sandbox reboot":        {{[]string{"dev-9"}, exitRefused}},
		"sandbox cut":           {{[]string{"dev-9"}, exitRefused}},
		"sandbox heal":          {{[]string{"dev-9"}, exitRefused}},
		"sandbox delete":        {{[]string{"none", "-y"}, exitRefused}, {[]string{"dev"}, exitRefused}},
		"bundle build":          {{append(build, "--out", out("b.tar.zst")), exitDone}},
		"bundle inspect":        {{[]string{"/missing/v1.1.1"}, exitRefused}},
		"bundle verify":         {{[]string{"/missing/v1.1.1"}, exitRefused}},
		"version":               {{nil, exitDone}, {[]string{"--supported"}, exitDone}},
		"plugin list":           {{nil, exitDone}},
		"completion bash":       {{nil, exitRefused}},
		"completion zsh":        {{nil, exitRefused}},
		"completion fish":       {{nil, exitRefused}},
		"completion powershell": {{nil, exitRefused}},
	}
}

// A sandbox in the state whose machine is off.
const sandboxRecord = `{"version": 1, "name": "dev", "range": "198.18.7.0/24", "pool": "198.18.0.0/16",
"authorizedKey": "ssh-ed25519 AAAA dev",
"machines": [{"name": "dev-1", "address": "198.18.7.2", "hostKey": "ssh-ed25519 AAAA",
"machineID": "00000000000000000000000000000000", "disk": 21474836480}]}`

// Every command writes its result, or its error, in the format of -o, at any position on
// the command line. A command without a result refuses the format.
func TestEveryCommand_WritesItsResultInTheFormat(t *testing.T) {
	for _, format := range []view.Format{view.JSON, view.YAML} {
		t.Run(string(format), func(t *testing.T) {
			dir := t.TempDir()
			table := formattedCommands(t, dir)
			for _, name := range allCommands(t) {
				if len(table[name]) == 0 {
					table[name] = []formatted{{nil, exitRefused}} // others below it
				}
				for _, tc := range table[name] {
					answers(t, format, append([]string{"-o", string(format)}, append(strings.Fields(name), tc.args...)...), tc.want)
				}
				delete(table, name)
			}
			for name := range table {
				t.Errorf("%s is no command", name)
			}
		})
	}
}

// allCommands returns the names of all commands, except help and the commands that only
// the program itself starts.
func allCommands(t *testing.T) []string {
	var names []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if name := strings.TrimPrefix(c.CommandPath(), "slipway "); name != "slipway" && name != "help" && !c.Hidden {
			names = append(names, name)
		}
		for _, c := range c.Commands() {
			walk(c)
		}
	}
	s := newTestTerminal(t, "")
	walk(newApp(Streams{In: s.stdin, Out: &s.out, Err: &s.err}, s.env, nil).newRootCommand())
	slices.Sort(names)
	return names
}

// answers runs a command line without a terminal.
func answers(t *testing.T, format view.Format, args []string, want int) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "config"))
	s := newTestTerminal(t, "")
	records := filepath.Join(s.env.Getenv("SLIPWAY_HOME"), "sandboxes", "dev")
	if err := errors.Join(os.MkdirAll(records, 0o700),
		os.WriteFile(filepath.Join(records, "sandbox.json"), []byte(sandboxRecord), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.isUnattended = true
	f := &fake{Prepare: "create", Apply: "succeeded", Clusters: []string{"prod"}, Precheck: "errors", Cancel: "ok", History: "failed"}
	line := strings.Join(args, " ")
	if got := s.run(t, f, args...); got != want {
		t.Errorf("%s: exit code %d, want %d\n%s", line, got, want, s.err.String())
	}
	out := s.out.String()
	if out == "" {
		t.Errorf("%s: no answer\n%s", line, s.err.String())
	}
	if format == view.YAML {
		for _, doc := range strings.Split(out, "\n---\n") {
			var value any
			if err := yaml.Unmarshal([]byte(doc), &value); err != nil || value == nil {
				t.Errorf("%s: no YAML (%v): %s", line, err, doc)
			} else if _, isText := value.(string); isText {
				t.Errorf("%s: words: %s", line, doc)
			}
		}
		return
	}
	dec := json.NewDecoder(strings.NewReader(out))
	for {
		var value any
		err := dec.Decode(&value)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("%s: no JSON (%v): %s", line, err, out)
			return
		}
	}
}
