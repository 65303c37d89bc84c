// Package operatorimage makes the container image of the operator from a slipwayd program. The same program gives the
// same image.
package operatorimage

import (
	"context"
	"debug/elf"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/safefile"
)

// Repository is the name of the image. Its tag is the version.
const Repository = "slipway.dev/slipwayd"

// idProgram is the problem of a file that is not slipwayd for Linux.
const idProgram = "operator-program-invalid"

// programPath is the path of the program in the image.
const programPath = "/usr/local/bin/slipwayd"

// user is the user that runs the program.
const user = "65532:65532"

// RefOf returns the reference of the image of a version. A tag has no plus sign.
func RefOf(version string) string { return Repository + ":" + strings.ReplaceAll(version, "+", "-") }

// WriteArchive writes an image as an archive that container runtimes and registry clients read.
func WriteArchive(path, ref string, image v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	if err := tarball.WriteToFile(path, tag, image); err != nil {
		return fmt.Errorf("writing the image of the operator: %w", err)
	}
	return nil
}

// arches maps machines of ELF files to architectures of images.
var arches = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}

// FindArch returns the architecture of a program: "amd64" or "arm64". It must be a static program for Linux.
func FindArch(program string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", diag.Refuse(idProgram, fmt.Sprintf("%s cannot be the program of the operator: %s", program, why),
			"name a slipwayd program for Linux, which 'make server' builds as bin/slipwayd")
	}
	file, err := safefile.Open(program)
	if err != nil {
		return refuse(err.Error())
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		return refuse("it is not a program for Linux")
	}
	arch, ok := arches[f.Machine]
	switch imported, err := f.ImportedLibraries(); {
	case !ok || f.Class != elf.ELFCLASS64 || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN:
		return refuse("it is for another processor than amd64 and arm64")
	case err != nil || len(imported) > 0:
		return refuse("it needs libraries, which the image does not have")
	case f.Section(".go.buildinfo") == nil:
		return refuse("it is not slipwayd")
	}
	return arch, nil
}

// Make makes the image of a program. Its layer is a file in a directory, which must remain while the image is used.
func Make(ctx context.Context, program, arch, dir string) (v1.Image, error) {
	file, err := pack.Write(ctx, filepath.Join(dir, "slipwayd-"+arch+".tar.gz"), []pack.Member{
		{Name: strings.TrimPrefix(programPath, "/"), Path: program},
		{Name: "tmp", Dir: true, Sticky: true, Mode: 0o777},
	})
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: pack.Layer{File: file}, History: v1.History{CreatedBy: "slipway operator image", Comment: "slipwayd"}, MediaType: types.OCILayer,
	})
	if err != nil {
		return nil, fmt.Errorf("making the image of the operator: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{Entrypoint: []string{programPath}, User: user, WorkingDir: "/"}
	return mutate.ConfigFile(img, config)
}
