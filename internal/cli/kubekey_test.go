package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kk holds the commands of KubeKey 3 and their flags. Flags of all commands are under "".
var kk = map[string]string{
	"": "--debug -y/--yes --ignore-err --namespace",
	"kk create cluster": "-f/--filename --with-kubernetes --download-cmd -a/--artifact --with-kubesphere " +
		"--with-local-storage --skip-pull-images --skip-push-images --skip-install-addons --with-security-enhancement " +
		"--with-packages --container-manager",
	"kk create config":   "-f/--filename --with-kubernetes --name --with-kubesphere --from-cluster --kubeconfig",
	"kk create manifest": "-f/--filename --with-kubernetes --name --kubeconfig --with-registry --arch",
	"kk add nodes": "-f/--filename -a/--artifact --download-cmd --skip-pull-images --container-manager " +
		"--with-packages --skip-etcd",
	"kk delete cluster": "-f/--filename --with-kubernetes -A/--all",
	"kk delete node":    "-f/--filename",
	"kk upgrade": "-f/--filename --with-kubernetes --download-cmd -a/--artifact --with-kubesphere " +
		"--skip-pull-images --skip-dependency-check --with-etcd",
	"kk init os":                "-f/--filename -a/--artifact",
	"kk init registry":          "-f/--filename --download-cmd -a/--artifact",
	"kk certs check-expiration": "-f/--filename",
	"kk certs renew":            "-f/--filename",
	"kk artifact export":        "-m/--manifest -o/--output --download-cmd --image-start-index --image-transport --skip-remove-artifact",
	"kk artifact import":        "-a/--artifact",
	"kk artifact images push":   "-f/--filename -a/--artifact --images-dir --image-transport",
	"kk cluster-info dump":      "--namespaces --kube-config -A --output-dir -o -t/--tar --queue --log",
	"kk alpha create phase":     "binary os images etcd init join configure kubesphere addons",
	"kk alpha upgrade phase":    "binary images nodes kubesphere",
	"kk alpha cri migrate":      "-f/--filename --with-kubernetes --download-cmd -a/--artifact --role --type",
	"kk plugin list":            "--name-only",
	"kk completion":             "-t/--type",
	"kk version":                "-o --show-supported-k8s",
}

// docs/from-kubekey.md has exactly the commands and flags of kk.
// TestDocs_HaveOnlyValidCommandLines checks that Slipway's commands in it exist.
func TestKubeKeyPage_ListsExactlyTheFlagsOfKK(t *testing.T) {
	page, err := os.ReadFile("../../docs/from-kubekey.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|$")
	found := map[string]string{}
	collect := func(command, text string) {
		text, _, _ = strings.Cut(text, "\n## ")
		var flags []string
		for _, m := range row.FindAllStringSubmatch(text, -1) {
			if m[1] != "kk" { // the head of the table
				flags = append(flags, m[1])
			}
		}
		found[command] = strings.Join(flags, " ")
		if said, _, _ := strings.Cut(strings.TrimSpace(text), "\n"); said == "" || command != "" && strings.HasPrefix(said, "|") {
			t.Errorf("%s: the command has no description", command)
		}
	}
	_, common, _ := strings.Cut(string(page), "## Flags of every command\n")
	collect("", common)
	for _, section := range strings.Split(string(page), "\n### `")[1:] {
		command, text, _ := strings.Cut(section, "`\n")
		collect(command, text)
	}
	if d := cmp.Diff(kk, found); d != "" {
		t.Errorf("kk's commands and the page's differ (-kk +page):\n%s", d)
	}
}

// ours maps commands of kk to Slipway's commands that do the same, including commands
// that do not exist yet.
var ours = map[string]string{
	"kk create cluster":         "create cluster",
	"kk create config":          "create config",
	"kk create manifest":        "create manifest",
	"kk add nodes":              "add nodes",
	"kk delete cluster":         "delete cluster",
	"kk delete node":            "delete node",
	"kk upgrade":                "upgrade",
	"kk init os":                "init os",
	"kk init registry":          "init registry",
	"kk certs check-expiration": "certs check",
	"kk certs renew":            "certs renew",
	"kk artifact export":        "bundle build",
	"kk artifact import":        "bundle verify",
	"kk artifact images push":   "bundle push",
	"kk cluster-info dump":      "dump",
	"kk alpha create phase":     "resume",
	"kk alpha upgrade phase":    "upgrade",
	"kk alpha cri migrate":      "migrate",
	"kk plugin list":            "plugin list",
	"kk completion":             "completion",
	"kk version":                "version",
}

// The page must name every existing command in ours, and must not list it under "Not
// yet".
func TestKubeKeyPage_NamesEveryExistingCommand(t *testing.T) {
	page, err := os.ReadFile("../../docs/from-kubekey.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newTestTerminal(t, "")
	root := newApp(Streams{In: s.stdin, Out: &s.out, Err: &s.err}, s.env, nil).newRootCommand()
	for command := range kk {
		if command == "" {
			continue
		}
		name := ours[command]
		if name == "" {
			t.Errorf("%s has no entry in ours", command)
			continue
		}
		cmd, rest, err := root.Find(strings.Fields(name))
		if err != nil || len(rest) > 0 || cmd == root {
			continue
		}
		_, section, _ := strings.Cut(string(page), "\n### `"+command+"`\n")
		section, _, _ = strings.Cut(section, "\n##")
		if strings.HasPrefix(section, "Not yet") || !strings.Contains(section, "`slipway "+name) {
			t.Errorf("there is slipway %s, and the page does not say so of %s", name, command)
		}
	}
}
