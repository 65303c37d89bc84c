package bundlecmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/fileowner"
)

// addRegistryFlags adds the flags of a command that can use a registry. There is no flag
// for a password, because other users can read command lines.
func addRegistryFlags(cmd *cobra.Command, at *bundle.Registry) {
	f := cmd.Flags()
	f.StringVar(&at.Credentials, "credentials", "",
		"a `file` with registry credentials, in the format of docker login (default: the credentials of docker login)")
	f.StringVar(&at.CA, "ca", "", "a `file` with CA certificates to trust for registries, in addition to the system's CAs")
	f.BoolVar(&at.Insecure, "insecure", false, "do not verify certificates of registries, and allow registries without TLS")
}

func newExportCommand(p program.Program) *cobra.Command {
	var out string
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: "export BUNDLE --out FILE", Short: "Write a bundle to a file",
		Long: `Writes a bundle with its signatures to one file, for transfer to another machine.
All checksums are verified. The file is written completely or not at all.

` + bundleHelp,
		Example: "  slipway bundle export v1.37.1 --out /media/stick/k8s.tar.zst",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeBundle(p),
		RunE: func(c *cobra.Command, args []string) error {
			dirs, err := p.FindDirectories()
			if err != nil {
				return err
			}
			if err := bundle.CheckOut(out); err != nil {
				return err
			}
			b, err := openBundle(c.Context(), p, args[0], at)
			if err != nil {
				return err
			}
			missing := fileowner.MissingPaths(out)
			if err := bundle.Export(c.Context(), b, out); err != nil {
				return err
			}
			if err := giveToOwner(dirs.Owner, out, missing); err != nil {
				return err
			}
			return writeTransferResult(p, b, out, "slipway bundle import "+out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the `file` (.tar.zst), or a directory if the name ends in /")
	_ = cmd.MarkFlagRequired("out")
	addRegistryFlags(cmd, &at)
	return cmd
}

// transferResult is the result of a transfer as JSON or YAML.
type transferResult struct {
	Kubernetes string   `json:"kubernetes"`
	Arches     []string `json:"arches"`
	Digest     string   `json:"digest"`
	SizeBytes  int64    `json:"sizeBytes"`
	SignedBy   []string `json:"signedBy,omitempty"`
	To         string   `json:"to"`
}

func writeTransferResult(p program.Program, b *bundle.Bundle, to, next string) error {
	m := b.Manifest()
	value := transferResult{m.Kubernetes, m.Arches, b.Digest(), b.Size(), b.SignedBy(), to}
	return p.WriteResult(value, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "Kubernetes %s for %s, %s, verified: %s\nDigest: %s\nNext: %s\n",
			m.Kubernetes, strings.Join(m.Arches, ", "), bytesize.Format(value.SizeBytes), to, value.Digest, next)
		return err
	})
}

func newImportCommand(p program.Program) *cobra.Command {
	return newCacheCommand(p, cacheCommand{
		use: "import FILE", short: "Import a bundle into the cache",
		long: `Imports a bundle from a .tar.zst file or a directory into the cache, where clusters
find it by its version. All checksums are verified first. A bundle that is incomplete,
or that is not signed with a key of --key, is not imported. For a file from "slipway
bundle delta", the rest of the content is taken from the cache.`,
		get: func(ctx context.Context, from, cache string, _ bundle.Registry, keys []bundle.Key) (*bundle.Bundle, error) {
			return bundle.Import(ctx, from, cache, keys...)
		},
	})
}

func newPullCommand(p program.Program) *cobra.Command {
	cmd := newCacheCommand(p, cacheCommand{
		use: "pull REFERENCE", short: "Pull a bundle from a registry", registry: true,
		long: `Pulls a bundle from an OCI registry into the cache, where clusters find it by its
version. Content that is already in the cache is not fetched again. All checksums are
verified. Credentials come from docker login or from a file, never from the command
line.`,
		get: func(ctx context.Context, from, cache string, at bundle.Registry, keys []bundle.Key) (*bundle.Bundle, error) {
			return bundle.Pull(ctx, from, cache, at, keys...)
		},
	})
	cmd.Example = "  slipway bundle pull registry.example.com/slipway/bundle:v1.37.1 --ca ca.crt"
	return cmd
}

// A cacheCommand describes a command that adds a bundle to the cache.
type cacheCommand struct {
	use, short, long string
	registry         bool
	get              func(ctx context.Context, from, cache string, at bundle.Registry, keys []bundle.Key) (*bundle.Bundle, error)
}

func newCacheCommand(p program.Program, a cacheCommand) *cobra.Command {
	var at bundle.Registry
	var by signerFlags
	cmd := &cobra.Command{
		Use: a.use, Short: a.short, Long: a.long, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dirs, err := p.FindDirectories()
			if err != nil {
				return err
			}
			keys, err := by.readKeys()
			if err != nil {
				return err
			}
			b, err := a.get(c.Context(), args[0], dirs.Cache, at, keys)
			if err != nil {
				return err
			}
			return writeTransferResult(p, b, b.Path(), "slipway create cluster --kubernetes "+b.Manifest().Kubernetes+" -f FILE")
		},
	}
	if a.registry {
		addRegistryFlags(cmd, &at)
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	by.addTo(cmd)
	return cmd
}

func newPushCommand(p program.Program) *cobra.Command {
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: "push BUNDLE REFERENCE", Short: "Push a bundle to a registry",
		Long: `Pushes a bundle with its signatures to an OCI registry. All checksums are verified
before the push, and afterwards Slipway checks that the registry has every part. Content
that the registry already has is not sent again. Credentials come from docker login or
from a file, never from the command line.

` + bundleHelp,
		Example: "  slipway bundle push v1.37.1 registry.example.com/slipway/bundle:v1.37.1",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: completeBundle(p),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := openBundle(c.Context(), p, args[0], at)
			if err != nil {
				return err
			}
			to, err := bundle.Push(c.Context(), b, args[1], at)
			if err != nil {
				return err
			}
			return writeTransferResult(p, b, to, "slipway bundle pull "+args[1])
		},
	}
	addRegistryFlags(cmd, &at)
	return cmd
}

func newMergeCommand(p program.Program) *cobra.Command {
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: "merge BUNDLE BUNDLE...", Short: "Merge bundles of different architectures",
		Long: `Merges several bundles of the same version and source for different architectures
into one bundle in the cache. The result is the same as if they had been built together.
It has none of their signatures.

` + bundleHelp,
		Example: "  slipway bundle merge amd64.tar.zst arm64.tar.zst",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			dirs, err := p.FindDirectories()
			if err != nil {
				return err
			}
			var parts []*bundle.Bundle
			for _, arg := range args {
				part, err := openBundle(c.Context(), p, arg, at)
				if err != nil {
					return err
				}
				parts = append(parts, part)
			}
			b, err := bundle.Merge(c.Context(), dirs.Cache, parts...)
			if err != nil {
				return err
			}
			return writeTransferResult(p, b, b.Path(), "slipway bundle export "+b.Path()+" --out FILE")
		},
	}
	addRegistryFlags(cmd, &at)
	return cmd
}

func newDeltaCommand(p program.Program) *cobra.Command {
	var out string
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: "delta OLD NEW --out FILE", Short: "Write the difference between two bundles",
		Long: `Writes the content of the bundle NEW that OLD does not have to one file, with the
signatures of NEW. On a machine that has OLD in its cache, "slipway bundle import"
restores NEW from this file and verifies all checksums.

OLD and NEW are directories, .tar.zst files, registry references or versions in
the cache.`,
		Example: "  slipway bundle delta v1.36.4 v1.37.1 --out update.tar.zst",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			dirs, err := p.FindDirectories()
			if err != nil {
				return err
			}
			old, err := openBundle(c.Context(), p, args[0], at)
			if err != nil {
				return err
			}
			next, err := openBundle(c.Context(), p, args[1], at)
			if err != nil {
				return err
			}
			missing := fileowner.MissingPaths(out)
			d, err := bundle.WriteDelta(c.Context(), old, next, out)
			if err != nil {
				return err
			}
			if err := giveToOwner(dirs.Owner, out, missing); err != nil {
				return err
			}
			return writeDeltaResult(p, old, next, d, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the `file` to write (.tar.zst)")
	_ = cmd.MarkFlagRequired("out")
	addRegistryFlags(cmd, &at)
	return cmd
}

// deltaResult is the result of delta as JSON or YAML.
type deltaResult struct {
	Base      string `json:"base"`
	Digest    string `json:"digest"`
	Blobs     int    `json:"blobs"`
	SizeBytes int64  `json:"sizeBytes"`
	Out       string `json:"out"`
}

func writeDeltaResult(p program.Program, old, next *bundle.Bundle, d bundle.Difference, out string) error {
	value := deltaResult{old.Digest(), next.Digest(), d.Blobs, d.SizeBytes, out}
	return p.WriteResult(value, func(w io.Writer) error {
		base := old.Manifest().Kubernetes
		_, err := fmt.Fprintf(w, "Kubernetes %s from %s: %s of %s in %s\nNext, on a machine with %s in its cache: slipway bundle import %s\n",
			next.Manifest().Kubernetes, base, bytesize.Format(d.SizeBytes), bytesize.Format(next.Size()), out, base, out)
		return err
	})
}
