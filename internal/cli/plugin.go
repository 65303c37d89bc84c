package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
)

// pluginPrefix is the prefix of the names of plugins.
const pluginPrefix = "slipway-"

// A plugin is an executable on PATH whose name makes it a command.
type plugin struct {
	Name    string `json:"name"` // the command: "foo bar"
	Path    string `json:"path"`
	Warning string `json:"warning,omitempty"`
}

// A pluginFinder finds and runs the plugins on PATH.
type pluginFinder struct{ *console }

// listPlugins returns the plugins on PATH, in the order in which they are found.
func (f *pluginFinder) listPlugins(root *cobra.Command) []plugin {
	var out []plugin
	first := map[string]string{}
	for _, dir := range filepath.SplitList(f.env.Getenv("PATH")) {
		entries, err := os.ReadDir(dir)
		if err != nil || !filepath.IsAbs(dir) {
			continue // PATH may contain directories that do not exist
		}
		for _, e := range entries {
			base, ok := strings.CutPrefix(e.Name(), pluginPrefix)
			if !ok || base == "" || base == "node" { // slipway-node is the node helper, not a plugin
				continue
			}
			path := filepath.Join(dir, e.Name())
			p := plugin{Name: toCommandName(base), Path: path}
			switch {
			case first[base] != "":
				p.Warning = "never runs: " + first[base] + " comes first on PATH"
			case !isExecutable(path):
				p.Warning = "is not executable"
			case isOwnCommand(root, strings.Fields(p.Name)):
				p.Warning = "never runs: slipway has a command with that name"
			}
			if first[base] == "" && p.Warning == "" {
				first[base] = path
			}
			out = append(out, p)
		}
	}
	return out
}

// toCommandName returns the command for a plugin's file name: dashes separate words,
// and underscores become dashes.
func toCommandName(base string) string {
	words := strings.Split(base, "-")
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, "_", "-")
	}
	return strings.Join(words, " ")
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// isOwnCommand reports whether a command line is one of Slipway's own commands.
func isOwnCommand(root *cobra.Command, words []string) bool {
	cmd, _, err := root.Find(words)
	return err == nil && cmd != root
}

// findPlugin finds the plugin for a command line that is not one of Slipway's commands:
// for "foo bar --x", slipway-foo-bar if it exists, otherwise slipway-foo.
func (f *pluginFinder) findPlugin(root *cobra.Command, args []string) (path string, rest []string) {
	words := args[:0:0]
	for _, w := range args {
		if strings.HasPrefix(w, "-") {
			break
		}
		words = append(words, strings.ReplaceAll(w, "-", "_"))
	}
	if len(words) == 0 || strings.HasPrefix(words[0], "__") || isOwnCommand(root, args[:1]) {
		return "", nil
	}
	for n := len(words); n > 0; n-- {
		name := pluginPrefix + strings.Join(words[:n], "-")
		if strings.ContainsRune(name, filepath.Separator) {
			continue
		}
		for _, dir := range filepath.SplitList(f.env.Getenv("PATH")) {
			if p := filepath.Join(dir, name); filepath.IsAbs(dir) && isExecutable(p) {
				return p, args[n:]
			}
		}
	}
	return "", nil
}

// runPlugin replaces this process with a plugin.
func (f *pluginFinder) runPlugin(path string, rest []string) error {
	err := f.env.Exec(path, append([]string{path}, rest...), f.env.Environ())
	if err != nil {
		return newProblem(idPluginFailed, "see: slipway plugin list", "running %s: %v", path, err)
	}
	return nil
}

func newPluginCommand(f *pluginFinder) *cobra.Command {
	cmd := program.NewParentCommand("plugin", "Manage plugins")
	cmd.Long = `Plugins are programs on PATH whose names begin with "` + pluginPrefix + `". slipway-foo is the
command "slipway foo", slipway-foo-bar is "slipway foo bar", and slipway-foo_bar is
"slipway foo-bar".`
	var nameOnly bool
	list := &cobra.Command{
		Use: "list", Short: "List the plugins on PATH", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			found := f.listPlugins(c.Root())
			if found == nil {
				found = []plugin{}
			}
			for _, p := range found {
				if p.Warning != "" {
					f.printMessage("warning: %s %s", p.Path, p.Warning)
				}
			}
			return f.writeResult(found, func(w io.Writer) error { return f.writePluginTable(w, found, nameOnly) })
		},
	}
	list.Flags().BoolVar(&nameOnly, "name-only", false, "list only the file names of the plugins")
	cmd.AddCommand(list)
	return cmd
}

func (f *pluginFinder) writePluginTable(w io.Writer, found []plugin, nameOnly bool) error {
	if len(found) == 0 {
		f.printMessage("No plugins found on PATH.")
		return nil
	}
	if nameOnly {
		var names []string
		for _, p := range found {
			names = append(names, filepath.Base(p.Path))
		}
		slices.Sort(names)
		for _, n := range slices.Compact(names) {
			fmt.Fprintln(w, n)
		}
		return nil
	}
	var rows [][]string
	for _, p := range found {
		rows = append(rows, []string{"slipway " + p.Name, p.Path})
	}
	return view.WriteTable(w, []string{"COMMAND", "PROGRAM"}, rows)
}
