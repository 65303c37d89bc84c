package bundletest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// WriteProgram writes a file that looks like a static Go program for Linux on a machine, and returns its path. It has
// no code.
func WriteProgram(t testing.TB, machine elf.Machine) string {
	t.Helper()
	const names = "\x00.go.buildinfo\x00.shstrtab\x00"
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Shoff: 64, Ehsize: 64, Shentsize: 64,
		Shnum: 3, Shstrndx: 2,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	const content = 64 + 3*64
	sections := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: content, Size: uint64(len(names)), Addralign: 1},
		{
			Name: uint32(bytes.Index([]byte(names), []byte(".shstrtab"))), Type: uint32(elf.SHT_STRTAB), Off: content, Size: uint64(len(names)),
			Addralign: 1,
		},
	}
	var out bytes.Buffer
	for _, part := range []any{header, sections, []byte(names)} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "slipwayd")
	if err := os.WriteFile(path, out.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
