package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/version"
)

func (a *app) kubectlCmd() *cobra.Command {
	return program.WordsOnly(&cobra.Command{
		Use: "kubectl [NAME] -- ARGS...", Short: "Run kubectl on a cluster",
		Long:    "Runs the kubectl of the cluster's bundle with the cluster's admin kubeconfig.",
		Example: "  slipway kubectl prod -- get nodes -o wide",
		Args:    cobra.ArbitraryArgs, ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			dash := cmd.ArgsLenAtDash()
			if dash < 0 || dash > 1 {
				return problem(idUsage, "slipway kubectl NAME -- get nodes", "the arguments of kubectl must follow --")
			}
			svc, name, err := a.chosen(ctx, args[:dash])
			if err != nil {
				return err
			}
			code, err := svc.Kubectl(ctx, name, args[dash:], a.In, a.Out, a.Err)
			switch {
			case err == nil && ctx.Err() != nil: // a signal ended kubectl
				return &exitError{code: exitInterrupted}
			case err == nil && code != 0:
				return &exitError{code: code}
			}
			return err
		},
	})
}

func (a *app) versionCmd() *cobra.Command {
	var supported bool
	cmd := &cobra.Command{
		Use: "version", Short: "Show Slipway's version", Args: cobra.NoArgs,
		Long: "Shows the version of Slipway, or with --supported the Kubernetes versions that it can install.",
		RunE: func(*cobra.Command, []string) error {
			if supported {
				return a.supported()
			}
			v := version.Get()
			return a.data(v, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, strings.TrimSpace(fmt.Sprintf("slipway %s %s/%s %s %s", v.Version, v.OS, v.Arch, v.Go, v.Commit)))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&supported, "supported", false, "list the supported Kubernetes versions")
	return cmd
}

// supported lists the Kubernetes versions of the catalogue.
func (a *app) supported() error {
	cat, err := a.catalogue()
	if err != nil {
		return err
	}
	type line struct {
		Kubernetes string `json:"kubernetes"`
		Default    bool   `json:"default,omitempty"`
	}
	list := []line{}
	for _, v := range cat.Supported() {
		list = append(list, line{v, v == cat.Default()})
	}
	return a.data(list, func(w io.Writer) error {
		for _, l := range list {
			mark := ""
			if l.Default {
				mark = "  (default)"
			}
			fmt.Fprintln(w, l.Kubernetes+mark)
		}
		return nil
	})
}
