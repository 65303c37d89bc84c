package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/version"
)

// versionCommand holds what "version" needs.
type versionCommand struct{ *workspace }

func newVersionCommand(c versionCommand) *cobra.Command {
	var supported bool
	cmd := &cobra.Command{
		Use: "version", Short: "Show Slipway's version", Args: cobra.NoArgs,
		Long: "Shows the version of Slipway, or with --supported the Kubernetes versions that it can install.",
		RunE: func(*cobra.Command, []string) error {
			if supported {
				return c.listSupported()
			}
			v := version.Get()
			return c.writeResult(v, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, strings.TrimSpace(fmt.Sprintf("slipway %s %s/%s %s %s", v.Version, v.OS, v.Arch, v.Go, v.Commit)))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&supported, "supported", false, "list the supported Kubernetes versions")
	return cmd
}

// listSupported lists the Kubernetes versions of the catalogue.
func (c versionCommand) listSupported() error {
	cat, err := c.loadCatalogue()
	if err != nil {
		return err
	}
	type line struct {
		Kubernetes string `json:"kubernetes"`
		Default    bool   `json:"default,omitempty"`
	}
	list := []line{}
	for _, v := range cat.SupportedVersions() {
		list = append(list, line{v, v == cat.DefaultVersion()})
	}
	return c.writeResult(list, func(w io.Writer) error {
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
