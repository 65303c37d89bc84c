package bundle

import (
	"context"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/bundle/operatorimage"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/version"
)

// operatorName is the name of the image of the operator in a bundle.
const operatorName = "slipwayd"

// findOperators returns the programs for the image of the operator, by architecture. Each architecture of the bundle
// needs one.
func (b *builder) findOperators() (map[string]string, error) {
	if len(b.Operators) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, program := range b.Operators {
		arch, err := operatorimage.FindArch(program)
		if err != nil {
			return nil, err
		}
		if out[arch] != "" {
			return nil, diag.Refuse(IDExtra, "--operator names two programs for "+arch+": "+out[arch]+" and "+program,
				"name one slipwayd program for each architecture")
		}
		out[arch] = program
	}
	for _, arch := range b.request.Arches {
		if out[arch] == "" {
			return nil, diag.Refuse(IDExtra, "the bundle is for "+strings.Join(b.request.Arches, " and ")+
				", but --operator names no program for "+arch, "name one slipwayd program for each architecture")
		}
	}
	return out, nil
}

// addOperator adds the image of the operator to the parts of a bundle. Its layers are in the cache.
func (b *builder) addOperator(ctx context.Context, parts *source.Parts) error {
	programs, err := b.findOperators()
	if err != nil || programs == nil {
		return err
	}
	dir := filepath.Join(b.Cache, "downloads", "operator")
	if err := safefile.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	release := version.Get().Version
	for _, arch := range b.request.Arches {
		b.request.ReportProgress(Progress{Component: "image " + operatorName, Phase: source.Packing, Message: programs[arch]})
		image, err := operatorimage.Make(ctx, programs[arch], arch, dir)
		if err != nil {
			return err
		}
		digest, err := image.Digest()
		if err != nil {
			return err
		}
		parts.Images = append(parts.Images, source.Image{
			Name: operatorName, Version: release, Arch: arch, Licence: "Apache-2.0", Ref: operatorimage.RefOf(release), Image: image, Extra: true,
		})
		parts.Origins = append(parts.Origins, source.Origin{
			For: operatorName, Kind: "program", Name: "slipwayd", Version: release, Sum: digest.String(),
		})
	}
	return nil
}
