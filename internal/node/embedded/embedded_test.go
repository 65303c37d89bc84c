package embedded_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"runtime"
	"testing"

	"slipway.dev/slipway/internal/node/embedded"
)

func TestPack_IsReproducible(t *testing.T) {
	program := bytes.Repeat([]byte("slipway"), 10_000)
	packed, err := embedded.Pack(program)
	if err != nil {
		t.Fatal(err)
	}
	again, err := embedded.Pack(program)
	if err != nil || !bytes.Equal(packed, again) {
		t.Errorf("the same program packs differently, %v", err)
	}
	h, err := embedded.ParseHelper("amd64", newSection(packed))
	if err != nil {
		t.Fatal(err)
	}
	const sum = "81fb4ced0b83"
	if h.Size != int64(len(program)) || h.Arch != "amd64" || h.FileName() != "slipway-node-"+sum {
		t.Errorf("%s, %s, %d bytes", h.FileName(), h.Arch, h.Size)
	}
	zr, err := gzip.NewReader(h.PackedReader())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(zr); err != nil || !bytes.Equal(got, program) {
		t.Errorf("the program unpacks differently, %v", err)
	}
}

func TestParse_RefusesOtherContent(t *testing.T) {
	var plain bytes.Buffer
	zw := gzip.NewWriter(&plain)
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"empty": nil, "not packed": []byte("ELF"), "packed by others": plain.Bytes()} {
		if _, err := embedded.ParseHelper("amd64", newSection(raw)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFind_ReturnsTheEmbeddedHelper(t *testing.T) {
	if _, err := embedded.FindHelper("riscv64"); err == nil || errors.Is(err, embedded.ErrMissing) {
		t.Errorf("an architecture without a helper: %v", err)
	}
	if h, err := embedded.FindHelper("amd64"); err == nil && len(h.SHA256) != 64 || err != nil && !errors.Is(err, embedded.ErrMissing) {
		t.Errorf("the embedded helper is %q, %v", h.SHA256, err)
	}
}

func newSection(raw []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(raw), 0, int64(len(raw)))
}

// A thousand connections ask for it.
func TestFind_CopiesNothing(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const times = 20
	for range times {
		if _, err := embedded.FindHelper("amd64"); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 256<<10 {
		t.Errorf("finding a helper takes %d bytes", each)
	}
}
