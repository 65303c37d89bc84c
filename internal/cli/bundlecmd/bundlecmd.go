// Package bundlecmd is the command `slipway bundle`: it builds, inspects, transfers,
// signs and compares bundles.
package bundlecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/source/upstream"
	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/fileowner"
)

// NewCommand returns the command.
func NewCommand(p program.Program) *cobra.Command {
	cmd := program.NewParentCommand("bundle", "Build, transfer, sign and verify bundles", "artifact")
	cmd.Long = `Builds, transfers, signs and verifies bundles. A bundle contains everything that is
needed to install a cluster, in one file.`
	cmd.AddCommand(newBuildCommand(p), newInspectCommand(p), newVerifyCommand(p), newExportCommand(p),
		newImportCommand(p), newPushCommand(p), newPullCommand(p),
		newMergeCommand(p), newDeltaCommand(p), newKeygenCommand(p), newSignCommand(p))
	return cmd
}

// buildHelp is the help text of bundle build.
const buildHelp = `Builds a bundle in the cache, where "slipway create cluster" finds it.

Sources:
  upstream  Downloads official releases and images.
  modules   Compiles everything from Go modules.
  auto      Uses upstream if it is reachable, otherwise modules.

Content that is already in the cache is not fetched or compiled again.`

func newBuildCommand(p program.Program) *cobra.Command {
	var o bundle.BuildOptions
	var runtime, manifest string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build a bundle in the cache",
		Long:  buildHelp,
		Example: `  slipway bundle build
  slipway bundle build --kubernetes v1.36.4 --arch amd64,arm64 --out k8s.tar.zst`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dirs, err := p.FindDirectories()
			if err != nil {
				return err
			}
			if runtime != "containerd" && runtime != "docker" {
				return bundle.UnknownRuntime(runtime)
			}
			o.Cache, o.Owner, o.Docker = dirs.Cache, dirs.Owner, runtime == "docker"
			if err := applyManifest(&o, manifest); err != nil {
				return err
			}
			if o.Releases, err = p.LoadReleases(); err != nil {
				return err
			}
			missing := fileowner.MissingPaths(o.Out)
			display := NewDisplay(p.Err, p.Size)
			o.Progress = display.ShowProgress
			b, err := bundle.Build(c.Context(), o)
			display.Close()
			if err == nil {
				err = giveToOwner(dirs.Owner, o.Out, missing)
			}
			if err != nil {
				return err
			}
			return writeBuildResult(p, b, o.Out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubernetes, "kubernetes", "", "Kubernetes `version` (default: see version --supported)")
	f.StringSliceVar(&o.Arches, "arch", nil, "`architectures`: amd64, arm64 (default: this machine's)")
	f.StringVar(&o.Source, "source", bundle.Auto, "the source of the content: auto, upstream or modules")
	f.StringVar(&runtime, "runtime", "containerd", "the container runtime: containerd, or docker (includes containerd)")
	f.StringVar(&o.Upstream.Mirror, "mirror", "",
		"the `name` of an upstream mirror: "+strings.Join(upstream.MirrorNames(), ", ")+" (default: the official sites)")
	f.StringToStringVar(&o.Upstream.Sites, "site", nil, "replace an upstream site: `NAME=URL` (see docs/guide/bundle.md)")
	f.StringSliceVar(&o.Operators, "operator", nil,
		"include the image of the operator, made from these slipwayd `programs` for Linux, one for each architecture")
	f.StringVar(&o.Out, "out", "", "also write the bundle to this `file` (.tar.zst), or to a directory if the name ends in /")
	addManifestFlags(cmd, &manifest, &o.Registry)
	program.CompleteVersion(cmd, p.LoadReleases)
	program.CompleteFlag(cmd, "arch", bundle.Arches...)
	program.CompleteFlag(cmd, "source", bundle.Auto, bundle.Upstream, bundle.Modules)
	program.CompleteFlag(cmd, "runtime", "containerd", "docker")
	program.CompleteFlag(cmd, "mirror", upstream.MirrorNames()...)
	return cmd
}

// addManifestFlags adds the flags for a build from a manifest.
func addManifestFlags(cmd *cobra.Command, manifest *string, at *bundle.Registry) {
	cmd.Flags().StringVar(manifest, "manifest", "",
		"build the bundle from this manifest `file`: version, components, additional images (see slipway create manifest)")
	addRegistryFlags(cmd, at)
	for _, named := range []string{"kubernetes", "arch", "runtime"} {
		cmd.MarkFlagsMutuallyExclusive("manifest", named)
	}
}

// applyManifest sets the options of a build from a manifest file. It does nothing if
// file is "".
func applyManifest(o *bundle.BuildOptions, file string) error {
	if file == "" {
		return nil
	}
	w, err := bundle.ReadWanted(file)
	if err != nil {
		return err
	}
	o.Kubernetes, o.Arches, o.Docker = w.Kubernetes, w.Arches, w.Runtime == "docker"
	o.Components, o.Images = w.Components, w.Images
	return nil
}

// giveToOwner gives the files that a build has written to out, and the directories that
// it created, to the owner. An existing directory of root is not changed, because it may
// contain other files.
func giveToOwner(to *fileowner.Owner, out string, missing []string) error {
	switch {
	case to == nil, out == "":
		return nil
	case !strings.HasSuffix(out, "/"):
		return errors.Join(to.GiveFiles(out), to.GiveMade(missing))
	case len(missing) == 0 && fileowner.BelongsToRoot(out):
		return nil
	}
	return errors.Join(to.GiveTree(out), to.GiveMade(missing))
}

// buildResult is the result of build as JSON or YAML.
type buildResult struct {
	Kubernetes string   `json:"kubernetes"`
	Arches     []string `json:"arches"`
	Source     string   `json:"source"`
	Digest     string   `json:"digest"`
	SizeBytes  int64    `json:"sizeBytes"`
	Path       string   `json:"path"`
	Out        string   `json:"out,omitempty"`
}

func writeBuildResult(p program.Program, b *bundle.Bundle, out string) error {
	m := b.Manifest()
	made := buildResult{m.Kubernetes, m.Arches, m.Source, b.Digest(), b.Size(), b.Path(), out}
	return p.WriteResult(made, func(w io.Writer) error {
		where := cmp.Or(out, made.Path)
		_, err := fmt.Fprintf(w, "Kubernetes %s for %s: %s in %s\nNext: slipway bundle inspect %s\n",
			made.Kubernetes, strings.Join(made.Arches, ", "), bytesize.Format(made.SizeBytes), where, where)
		return err
	})
}

// newBundleCommand returns a command that prints something about the bundle in its
// argument.
func newBundleCommand(
	p program.Program, use, short string, answer func(ctx context.Context, b *bundle.Bundle, name string) error,
) *cobra.Command {
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: use + " BUNDLE", Short: short,
		Long: short + ".\n\n" + bundleHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeBundle(p),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := openBundle(c.Context(), p, args[0], at)
			if err != nil {
				return err
			}
			return answer(c.Context(), b, args[0])
		},
	}
	addRegistryFlags(cmd, &at)
	return cmd
}

const bundleHelp = `BUNDLE is a directory, a .tar.zst file, a registry reference or a version in the cache.
Use ./NAME for a file whose name is a version.`

// completeBundle completes a bundle with a file or a version in the cache.
func completeBundle(p program.Program) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		dirs, err := p.FindDirectories()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		known, err := p.LoadReleases()
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		cached := slices.DeleteFunc(known.SupportedVersions(), func(version string) bool {
			_, ok := bundle.FindCached(dirs.Cache, version, nil)
			return !ok
		})
		return cached, cobra.ShellCompDirectiveDefault
	}
}

// openBundle opens the bundle in an argument: a path, a reference, or a version in the
// cache.
func openBundle(ctx context.Context, p program.Program, arg string, at bundle.Registry) (*bundle.Bundle, error) {
	path, cache, err := findBundle(p, arg)
	if err != nil {
		return nil, err
	}
	return bundle.Open(ctx, path, cache, at)
}

// findBundle returns the path or reference of the bundle in an argument, and the cache. A
// version in the cache has precedence over a file with the same name in the working
// directory, which another user may have created.
func findBundle(p program.Program, arg string) (path, cache string, err error) {
	dirs, err := p.FindDirectories()
	if err != nil {
		return "", "", err
	}
	if arg == "" {
		return "", "", bundle.EmptyNameError()
	}
	releases, err := p.LoadReleases()
	if err != nil {
		return arg, dirs.Cache, nil
	}
	if r, err := releases.ResolveVersion(arg); err == nil {
		if path, ok := bundle.FindCached(dirs.Cache, r.Kubernetes, nil); ok {
			return path, dirs.Cache, nil
		}
	}
	return arg, dirs.Cache, nil
}

func newVerifyCommand(p program.Program) *cobra.Command {
	var by signerFlags
	cmd := newBundleCommand(p, "verify", "Verify the checksums of a bundle", func(ctx context.Context, b *bundle.Bundle, name string) error {
		keys, err := by.readKeys()
		if err != nil {
			return err
		}
		if err := errors.Join(b.CheckSigned(keys), b.Verify(ctx)); err != nil {
			return err
		}
		m := b.Manifest()
		whole := verifyResult{name, m.Kubernetes, len(m.Components), len(m.Images), b.Size(), b.Digest()}
		return p.WriteResult(whole, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s: verified: Kubernetes %s, %d components, %d images, %s, %s\n",
				name, m.Kubernetes, whole.Components, whole.Images, bytesize.Format(whole.SizeBytes), whole.Digest)
			return err
		})
	})
	by.addTo(cmd)
	return cmd
}

// verifyResult is the result of verify as JSON or YAML.
type verifyResult struct {
	Bundle     string `json:"bundle"`
	Kubernetes string `json:"kubernetes"`
	Components int    `json:"components"`
	Images     int    `json:"images"`
	SizeBytes  int64  `json:"sizeBytes"`
	Digest     string `json:"digest"`
}

func newInspectCommand(p program.Program) *cobra.Command {
	return newBundleCommand(p, "inspect", "Show the content of a bundle", func(_ context.Context, b *bundle.Bundle, _ string) error {
		return p.WriteResult(inspectResult{b.Digest(), b.Size(), b.SignedBy(), b.Manifest()},
			func(w io.Writer) error { return writeContents(w, b) })
	})
}

type inspectResult struct {
	Digest    string `json:"digest"`
	SizeBytes int64  `json:"sizeBytes"`
	// SignedBy names the keys of the bundle's signatures, which are not verified here.
	SignedBy []string `json:"signedBy,omitempty"`
	bundle.Manifest
}

func writeContents(w io.Writer, b *bundle.Bundle) error {
	m := b.Manifest()
	fmt.Fprintf(w, "Kubernetes  %s\nArch        %s\nSource      %s\nSize        %s\nDigest      %s\n",
		m.Kubernetes, strings.Join(m.Arches, ", "), m.Source, bytesize.Format(b.Size()), b.Digest())
	if names := b.SignedBy(); len(names) > 0 {
		fmt.Fprintf(w, "Signatures  %s (not verified; use slipway bundle verify --key)\n", strings.Join(names, ", "))
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "COMPONENT\tVERSION\tARCH\tSIZE\tLICENCE")
	for _, c := range m.Components {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.Version, c.Arch, bytesize.Format(c.Size), c.Licence)
	}
	fmt.Fprintln(tw, "\nIMAGE\tREFERENCE\tARCH\tSIZE\tLICENCE")
	for _, i := range m.Images {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", i.Name, i.Ref, i.Arch, bytesize.Format(i.Size()), i.Licence)
	}
	return tw.Flush()
}
