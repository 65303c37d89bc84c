package operatorimage_test

import (
	"archive/tar"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/bundle/operatorimage"
)

func TestMake_HasTheProgram(t *testing.T) {
	for machine, want := range map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"} {
		t.Run(want, func(t *testing.T) {
			program, dir := bundletest.WriteProgram(t, machine), t.TempDir()
			arch, err := operatorimage.FindArch(program)
			if err != nil || arch != want {
				t.Fatalf("the architecture is %q, %v", arch, err)
			}
			image, err := operatorimage.Make(t.Context(), program, arch, dir)
			if err != nil {
				t.Fatal(err)
			}
			archive := filepath.Join(dir, "image.tar")
			if err := operatorimage.WriteArchive(archive, operatorimage.RefOf("v1.2.3+dev"), image); err != nil {
				t.Fatal(err)
			}
			read, err := tarball.ImageFromPath(archive, nil)
			if err != nil {
				t.Fatal(err)
			}
			config, err := read.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if config.Architecture != want || config.OS != "linux" || config.Config.User != "65532:65532" ||
				!slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/slipwayd"}) {
				t.Errorf("the configuration is %+v", config)
			}
			again, err := operatorimage.Make(t.Context(), program, arch, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			first, err1 := image.Digest()
			second, err2 := again.Digest()
			if err := errors.Join(err1, err2); err != nil || first != second {
				t.Errorf("two images of one program differ: %s, %s, %v", first, second, err)
			}
			layers, err := image.Layers()
			if err != nil || len(layers) != 1 {
				t.Fatalf("%d layers, %v", len(layers), err)
			}
			content, err := layers[0].Uncompressed()
			if err != nil {
				t.Fatal(err)
			}
			defer content.Close()
			var names []string
			for r := tar.NewReader(content); ; {
				h, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, h.Name)
			}
			if !slices.Contains(names, "usr/local/bin/slipwayd") || !slices.Contains(names, "tmp/") {
				t.Errorf("the layer has %v", names)
			}
		})
	}
}

func TestRefOf_IsValid(t *testing.T) {
	if got := operatorimage.RefOf("v1.2.3+dev"); got != "slipway.dev/slipwayd:v1.2.3-dev" {
		t.Error(got)
	}
}

func TestFindArch_RefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	damaged, err := os.ReadFile(bundletest.WriteProgram(t, elf.EM_X86_64))
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"no such file":         filepath.Join(dir, "absent"),
		"a directory":          dir,
		"a script":             write("script", "#!/bin/sh\n"),
		"empty":                write("empty", ""),
		"a truncated program":  write("truncated", string(damaged[:80])),
		"another program":      write("other", strings.Replace(string(damaged), ".go.buildinfo", ".rs.buildinfo", 1)),
		"for another machine":  bundletest.WriteProgram(t, elf.EM_RISCV),
		"for another machine2": bundletest.WriteProgram(t, elf.EM_386),
	} {
		t.Run(name, func(t *testing.T) {
			if arch, err := operatorimage.FindArch(path); err == nil || !strings.Contains(err.Error(), "operator-program-invalid") {
				t.Errorf("the architecture is %q, %v", arch, err)
			}
		})
	}
}
