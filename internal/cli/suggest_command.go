package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// foreignCommands lists commands of kubectl and other programs that users type here, with
// the equivalent commands. WHAT is a placeholder for the next argument.
var foreignCommands = []struct {
	words   string // the beginning of the command line
	instead []string
}{
	{"get nodes", []string{"slipway kubectl NAME -- get nodes", "slipway cluster-info NAME"}},
	{"get node", []string{"slipway kubectl NAME -- get nodes", "slipway cluster-info NAME"}},
	{"get pods", []string{"slipway kubectl NAME -- get pods -A"}},
	{"get operations", []string{"slipway operations list"}},
	{"get bundles", []string{"slipway bundle list"}},
	{"get kubeconfig", []string{"slipway kubeconfig NAME"}},
	{"get", []string{"slipway kubectl NAME -- get WHAT", "slipway get clusters"}},
	{"delete", []string{"slipway delete cluster WHAT", "slipway delete nodes WHAT --cluster NAME"}},
	{"status", []string{"slipway cluster-info NAME"}},
	{"health", []string{"slipway cluster-info NAME"}},
	{"info", []string{"slipway cluster-info NAME"}},
	{"describe", []string{"slipway cluster-info NAME"}},
	{"logs", []string{"slipway operations show ID", "slipway kubectl NAME -- logs POD", "slipway dump NAME"}},
	{"log", []string{"slipway operations show ID", "slipway kubectl NAME -- logs POD", "slipway dump NAME"}},
	{"history", []string{"slipway operations list NAME"}},
	{"list", []string{"slipway get clusters"}},
	{"ls", []string{"slipway get clusters"}},
	{"destroy", []string{"slipway delete cluster NAME"}},
	{"reset", []string{"slipway delete cluster NAME"}},
	{"remove", []string{"slipway delete nodes NODE --cluster NAME", "slipway delete cluster NAME"}},
	{"rm", []string{"slipway delete nodes NODE --cluster NAME", "slipway delete cluster NAME"}},
	{"join", []string{"slipway add nodes -f FILE"}},
	{"scale", []string{"slipway add nodes -f FILE", "slipway delete nodes NODE --cluster NAME"}},
	{"backup", []string{"slipway etcd snapshot NAME"}},
	{"restore", []string{"slipway etcd restore NAME --from FILE"}},
	{"renew", []string{"slipway certs renew NAME"}},
	{"check", []string{"slipway precheck -f FILE"}},
	{"config", []string{"slipway create config", "slipway kubeconfig NAME"}},
}

// findSimilarCommands returns the subcommands of see whose names are similar to an
// unknown word.
func findSimilarCommands(see *cobra.Command, unknown string) []string {
	const typos = 2
	if see.SuggestionsMinimumDistance < typos {
		see.SuggestionsMinimumDistance = typos
	}
	var names []string
	for _, name := range see.SuggestionsFor(unknown) {
		names = append(names, strings.TrimPrefix(see.CommandPath()+" "+name, see.Root().Name()+" "))
	}
	return names
}

// findEquivalentCommands returns the commands that do what an unknown command would do,
// or nil.
func findEquivalentCommands(see *cobra.Command, unknown string) []string {
	words := strings.Fields(strings.TrimPrefix(see.CommandPath(), see.Root().Name()))
	typed := strings.Join(append(words, unknown), " ")
	for _, e := range foreignCommands {
		if typed == e.words {
			return e.instead
		}
	}
	if see.Name() != "get" && see.Name() != "delete" || len(findSimilarCommands(see, unknown)) > 0 {
		return nil
	}
	for _, e := range foreignCommands {
		if e.words != see.Name() {
			continue
		}
		var all []string
		for _, c := range e.instead {
			all = append(all, strings.ReplaceAll(c, "WHAT", unknown))
		}
		return all
	}
	return nil
}
