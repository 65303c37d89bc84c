package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/kubekey"
)

// A conversion is what convert is asked for.
type conversion struct {
	file, out, kubernetes string
	allowLoss             bool
}

func (a *app) convertCmd() *cobra.Command {
	var o conversion
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Write the cluster file that says what a file of KubeKey's says",
		Long: `Reads a Cluster of KubeKey's (kubekey.kubesphere.io/v1alpha2) and writes ours.
It reaches no host. What KubeKey fills by itself is written out, so that the
cluster is the same; passwords and keys are not copied, but named where they
are wanted.

A field that the cluster would be another without, and that Slipway has no
word for, is an error: --allow-loss converts without it and says so. Fields
that change nothing are named in warnings. With --out, scripts of hooks are
written to a directory beside the file.`,
		Example: `  slipway convert -f config-sample.yaml --out prod.yaml
  slipway convert -f config-sample.yaml --kubernetes v1.37.1 --allow-loss --out prod.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.convert(cmd.Context(), o) },
	}
	fileFlag(cmd, &o.file, "the file of KubeKey's; - is standard input")
	_ = cmd.MarkFlagRequired("file") // the flag is there
	cmd.Flags().StringVar(&o.out, "out", "", "write to this `file` instead of standard output")
	cmd.Flags().StringVar(&o.kubernetes, "kubernetes", "", "write this Kubernetes `version`, whatever the file says")
	cmd.Flags().BoolVar(&o.allowLoss, "allow-loss", false, "convert without what Slipway has no word for")
	program.CompleteVersion(cmd, a.catalogue)
	return cmd
}

func (a *app) convert(ctx context.Context, o conversion) error {
	data, dir, err := a.read(ctx, o.file)
	if err != nil {
		return err
	}
	cat, err := a.catalogue()
	if err != nil {
		return err
	}
	opts := kubekey.Options{
		File: called(o.file), Kubernetes: o.kubernetes, Default: cat.Default(), AllowLoss: o.allowLoss,
		Supported: func(v string) error {
			_, err := cat.Resolve(v)
			return err
		},
	}
	if o.out != "" {
		base := filepath.Base(o.out)
		opts.Scripts = strings.TrimSuffix(base, filepath.Ext(base)) + "-hooks"
		opts.Resolve = func(name string) string { return seenFrom(filepath.Dir(o.out), dir, name) }
	}
	r, err := kubekey.Convert(data, opts)
	if err != nil {
		return err
	}
	a.warn(r.Warnings)
	if o.out == "" {
		return a.document(r.Text)
	}
	return a.writeConverted(o.out, r)
}

// seenFrom names a file, relative to where the source is, for one that is
// written to another directory.
func seenFrom(out, source, name string) string {
	if strings.HasPrefix(name, "~") || filepath.IsAbs(name) {
		return name
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return filepath.Join(source, name)
	}
	if out == source {
		return name
	}
	rel, err := filepath.Rel(out, filepath.Join(source, name))
	if err != nil {
		return filepath.Join(source, name)
	}
	return rel
}

// writeConverted writes the file and its scripts: all of them, or, if one is
// there already, none.
func (a *app) writeConverted(out string, r *kubekey.Result) error {
	paths := spec.Paths{Dir: filepath.Dir(out)}
	scripts := []string{}
	for name := range r.Scripts {
		scripts = append(scripts, name)
	}
	slices.Sort(scripts)
	for _, name := range append([]string{filepath.Base(out)}, scripts...) {
		if _, err := os.Lstat(paths.Resolve(name)); !a.yes && !errors.Is(err, fs.ErrNotExist) {
			return problem(idFile, "name another file, or overwrite it with --yes", "%s is there already", paths.Resolve(name))
		}
	}
	d, err := a.directories()
	if err != nil {
		return err
	}
	for _, name := range scripts {
		dir := filepath.Dir(paths.Resolve(name))
		if err := safefile.Mkdir(dir, 0o755); err == nil {
			if err := d.Owner.Give(dir); err != nil {
				return refuse(err)
			}
		} else if !errors.Is(err, fs.ErrExist) {
			return problem(idFile, "", "making %s: %v", dir, unwrapPath(err))
		}
		if err := a.writeNew(paths.Resolve(name), r.Scripts[name], 0o755); err != nil {
			return err
		}
	}
	if err := a.writeNew(out, r.Text, 0o644); err != nil {
		return err
	}
	if a.format != view.Text {
		return view.Data(a.Out, a.format, map[string]any{"file": out, "scripts": scripts, "warnings": r.Warnings})
	}
	a.say("Wrote %s.\nNext: slipway plan -f %s", out, out)
	return nil
}
