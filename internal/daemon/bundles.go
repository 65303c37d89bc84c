package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundlestore"
	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/server/datadir"
)

// A bundleCommand has the flags of the commands about the bundles of a server.
type bundleCommand struct {
	*program
	cacheDir string
	output   string
	keys     []string
	registry bundle.Registry
	maxSize  int64 // GiB; 0: unlimited
}

// A bundleEntry is a bundle in the result of a command.
type bundleEntry struct {
	Kubernetes string    `json:"kubernetes,omitempty"`
	Arches     []string  `json:"arches,omitempty"`
	Digest     string    `json:"digest,omitempty"`
	SizeBytes  int64     `json:"sizeBytes"`
	SignedBy   []string  `json:"signedBy,omitempty"`
	Used       time.Time `json:"used"`
	InUse      bool      `json:"inUse"`
	Path       string    `json:"path"`
	Problem    string    `json:"problem,omitempty"`
}

// bundleHelp describes which bundle the commands mean.
const bundleHelp = `Clusters find a bundle by their Kubernetes version. The server does not have to run.`

func newBundleCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bundle", Short: "Add, list and remove the bundles of the server", Args: cobra.NoArgs,
		Long: "Manages the bundles in the cache of the server. " + bundleHelp,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	b := &bundleCommand{program: p}
	cmd.PersistentFlags().StringVar(&b.cacheDir, "cache-dir", "", "`directory` of bundles (default \"cache\" in the data directory)")
	cmd.AddCommand(b.newAddCommand(), b.newListCommand(), b.newRemoveCommand())
	return cmd
}

// cache returns the directory of bundles.
func (b *bundleCommand) cache() string {
	return cmp.Or(b.cacheDir, filepath.Join(b.dataDir, datadir.CacheDir))
}

func (b *bundleCommand) newAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add SOURCE", Short: "Add a bundle", Args: cobra.ExactArgs(1),
		Long: `Adds a bundle from a .tar.zst file, a directory or an OCI registry. All checksums are
verified first. ` + bundleHelp,
		Example: `  slipwayd bundle add k8s.tar.zst --key release.pub
  slipwayd bundle add registry.example.com/slipway/bundle:v1.37.1 --ca ca.crt`,
		RunE: func(cmd *cobra.Command, args []string) error { return b.add(cmd.Context(), args[0]) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&b.keys, "key", nil,
		"refuse a bundle that is not signed with this public `key`: a file, or ed25519:…; if repeated, one of the keys is enough")
	f.StringVar(&b.registry.Credentials, "credentials", "", "`file` with registry credentials, in the format of docker login")
	f.StringVar(&b.registry.CA, "ca", "", "`file` with CA certificates to trust for registries, in addition to the system's CAs")
	f.BoolVar(&b.registry.Insecure, "insecure", false, "do not verify certificates of registries, and allow registries without TLS")
	b.addSizeFlag(cmd)
	return cmd
}

// addSizeFlag adds the flag that removes old bundles.
func (b *bundleCommand) addSizeFlag(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&b.maxSize, "max-size", 0,
		"remove the bundles that were not used for the longest time, until the others have at most this size in `GiB`")
}

// add adds a bundle, and removes old ones if there is a limit.
func (b *bundleCommand) add(ctx context.Context, from string) error {
	var keys []bundle.Key
	for _, text := range b.keys {
		key, err := bundle.ReadKey(text)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	added, err := b.fetch(ctx, from, keys)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.Out, "added Kubernetes %s for %s, %s\nDigest: %s\n", added.Manifest().Kubernetes,
		strings.Join(added.Manifest().Arches, ", "), bytesize.Format(added.Size()), added.Digest())
	release, err := bundlestore.Use(ctx, added, b.cache(), time.Now())
	if err != nil {
		return err
	}
	defer func() { _ = release() }() // it was only locked
	return b.shrink(ctx)
}

// fetch adds a bundle from a path, or else from a registry.
func (b *bundleCommand) fetch(ctx context.Context, from string, keys []bundle.Key) (*bundle.Bundle, error) {
	if _, err := os.Stat(from); err != nil && bundle.IsReference(from) {
		return bundle.Pull(ctx, from, b.cache(), b.registry, keys...)
	}
	return bundle.Import(ctx, from, b.cache(), keys...)
}

// shrink removes old bundles if there is a limit.
func (b *bundleCommand) shrink(ctx context.Context) error {
	if b.maxSize <= 0 {
		return nil
	}
	removed, err := bundlestore.Shrink(ctx, b.cache(), b.maxSize<<30, time.Now())
	for i := range removed {
		b.printRemoved(&removed[i])
	}
	return err
}

func (b *bundleCommand) printRemoved(e *bundlestore.Entry) {
	fmt.Fprintf(b.Out, "removed %s, %s\n", escapeControls(filepath.Base(e.Path)), bytesize.Format(e.Size()))
}

func (b *bundleCommand) newListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the bundles", Args: cobra.NoArgs,
		Long: "Lists the bundles of the server, the last used first. " + bundleHelp,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.list(cmd.Context()) },
	}
	cmd.Flags().StringVarP(&b.output, "output", "o", "text", "output `format`: text or json")
	return cmd
}

// list prints the bundles.
func (b *bundleCommand) list(ctx context.Context) error {
	if err := checkOutput(b.output); err != nil {
		return err
	}
	all, err := bundlestore.List(ctx, b.cache())
	if err != nil {
		return err
	}
	out := make([]bundleEntry, 0, len(all))
	for i := range all {
		out = append(out, newBundleEntry(&all[i]))
	}
	if b.output == "json" {
		return b.writeJSON(out)
	}
	if len(out) == 0 {
		_, err := fmt.Fprintf(b.Out, "No bundles in %s\n", b.cache())
		return err
	}
	w := tabwriter.NewWriter(b.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KUBERNETES\tARCH\tSIZE\tLAST USED\tIN USE\tDIGEST")
	for _, e := range out {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%t\t%s\n", cmp.Or(e.Kubernetes, "(damaged)"), strings.Join(e.Arches, ","),
			bytesize.Format(e.SizeBytes), e.Used.Local().Format("2006-01-02 15:04"), e.InUse, cmp.Or(e.Digest, filepath.Base(e.Path)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range out {
		if e.Problem != "" {
			fmt.Fprintln(b.Err, "warning: "+escapeControls(e.Path+": "+e.Problem))
		}
	}
	return nil
}

func newBundleEntry(e *bundlestore.Entry) bundleEntry {
	out := bundleEntry{SizeBytes: e.Size(), Used: e.Used, InUse: e.InUse, Path: e.Path}
	if e.Problem != nil {
		out.Problem = e.Problem.Error()
	}
	if e.Bundle != nil {
		m := e.Bundle.Manifest()
		out.Kubernetes, out.Arches, out.Digest, out.SignedBy = m.Kubernetes, m.Arches, e.Bundle.Digest(), e.Bundle.SignedBy()
	}
	return out
}

func (b *bundleCommand) newRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove [NAME]...", Short: "Remove bundles",
		Long: `Removes bundles by version or digest. With --max-size, it removes old bundles too. A
bundle that an operation uses is not removed.`,
		Example: `  slipwayd bundle remove v1.35.6
  slipwayd bundle remove --max-size 20`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && b.maxSize <= 0 {
				return fmt.Errorf("invalid argument: give the name of a bundle, or --max-size")
			}
			for _, name := range args {
				removed, err := bundlestore.Remove(cmd.Context(), b.cache(), name)
				if err != nil {
					return err
				}
				b.printRemoved(&removed)
			}
			return b.shrink(cmd.Context())
		},
	}
	b.addSizeFlag(cmd)
	return cmd
}
