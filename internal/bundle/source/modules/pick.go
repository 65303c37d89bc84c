package modules

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/safefile"
)

// A picker selects files of unpacked Debian packages.
type picker string

const (
	pickPrograms picker = "programs"
	pickBase     picker = "base"
	pickNamed    picker = "named"
)

// busyboxNames are the programs an image has besides its own: flannel's init
// containers copy files, and a person may want to look around.
var busyboxNames = []string{"cat", "cp", "ls", "mkdir", "mv", "rm", "sh", "sleep"}

// pickMembers selects the members of a tar from a tree.
func (t *debTree) pickMembers(u unit, arch string) ([]pack.Member, error) {
	c := closure{tree: t, lib: source.LibDir(arch), members: map[string]pack.Member{}}
	switch u.Pick {
	case pickBase:
		return t.baseFiles()
	case pickNamed:
		return c.pickNamed(u)
	}
	for _, prog := range []string{"usr/sbin/nft", "usr/sbin/xtables-nft-multi", "usr/sbin/xtables-legacy-multi"} {
		if err := c.addELF(prog); err != nil {
			return nil, err
		}
	}
	plugins, err := filepath.Glob(filepath.Join(t.dir, c.lib, "xtables", "*.so"))
	if err != nil || len(plugins) == 0 {
		return nil, fmt.Errorf("no xtables plugins in the iptables package: %w", err)
	}
	for _, so := range plugins {
		if err := c.addELF(c.lib + "/xtables/" + filepath.Base(so)); err != nil {
			return nil, err
		}
	}
	t.markUsed("busybox-static")
	c.addCopyrights()
	return slices.Concat(c.listMembers(), programLinks(t.dir), source.HostTools(arch, c.interp)), nil
}

// pickNamed selects programs and the files that they load, to be run in a separate root
// directory.
func (c *closure) pickNamed(u unit) ([]pack.Member, error) {
	for _, p := range u.Take {
		if err := c.addELF(p); err != nil {
			return nil, err
		}
	}
	for _, pattern := range u.Data {
		files, err := filepath.Glob(filepath.Join(c.tree.dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			name, err := filepath.Rel(c.tree.dir, f)
			if err != nil {
				return nil, err
			}
			c.members[name] = pack.Member{Name: name, Path: f, Mode: 0o644}
		}
	}
	c.addCopyrights()
	return append(c.listMembers(), source.MergedLinks()...), nil
}

// programLinks returns the names under which programs are called.
func programLinks(dir string) []pack.Member {
	out := []pack.Member{{Name: "usr/bin/busybox", Path: filepath.Join(dir, "usr/bin/busybox")}}
	for _, name := range source.IPTablesNames() {
		out = append(out, pack.Member{Name: "usr/sbin/" + name, Link: "xtables-nft-multi"})
	}
	for _, name := range busyboxNames {
		out = append(out, pack.Member{Name: "usr/bin/" + name, Link: "busybox"})
	}
	return out
}

// A closure is programs with every library they load.
type closure struct {
	tree    *debTree
	lib     string // usr/lib/<triplet>
	interp  string // the loader's real name, such as usr/lib/<triplet>/ld-linux-x86-64.so.2
	members map[string]pack.Member
}

func (c *closure) listMembers() []pack.Member {
	out := make([]pack.Member, 0, len(c.members))
	for _, m := range c.members {
		out = append(out, m)
	}
	return out
}

// addELF adds an ELF file and its dependencies.
func (c *closure) addELF(name string) error {
	if _, ok := c.members[name]; ok {
		return nil
	}
	real, err := c.resolveLinks(name)
	if err != nil {
		return err
	}
	c.members[name] = pack.Member{Name: name, Path: filepath.Join(c.tree.dir, real)}
	file, err := safefile.Open(filepath.Join(c.tree.dir, real))
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	needs, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	for _, soname := range needs {
		if err := c.addELF(c.lib + "/" + soname); err != nil {
			return fmt.Errorf("%s needs %s: %w", name, soname, err)
		}
	}
	return c.addInterpreter(f)
}

// addInterpreter takes the loader that a program names: its own path is a
// link to the one among the libraries.
func (c *closure) addInterpreter(f *elf.File) error {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		data := make([]byte, p.Filesz)
		if _, err := p.ReadAt(data, 0); err != nil {
			return err
		}
		name := source.MergedPath(strings.TrimRight(string(data), "\x00"))
		target := c.lib + "/" + path.Base(name)
		if err := c.addELF(target); err != nil {
			return err
		}
		c.interp = target
		if name == target {
			return nil
		}
		rel, err := filepath.Rel(path.Dir(name), target)
		if err != nil {
			return err
		}
		c.members[name] = pack.Member{Name: name, Link: rel}
	}
	return nil
}

// resolveLinks follows links inside the tree.
func (c *closure) resolveLinks(name string) (string, error) {
	for range 8 {
		fi, err := safefile.Lstat(filepath.Join(c.tree.dir, name))
		if err != nil {
			return "", err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			return name, nil
		}
		to, err := safefile.Readlink(filepath.Join(c.tree.dir, name))
		if err != nil {
			return "", err
		}
		name = source.MergedPath(path.Join(path.Dir(name), to))
	}
	return "", fmt.Errorf("%s: too many links", name)
}

// addCopyrights adds the licences of the packages of all added files.
func (c *closure) addCopyrights() {
	for name := range c.members {
		if real, err := c.resolveLinks(name); err == nil {
			c.tree.markUsed(c.tree.from[real])
		}
	}
	for _, p := range slices.Sorted(maps.Keys(c.tree.used)) {
		name := "usr/share/doc/" + p + "/copyright"
		file := filepath.Join(c.tree.dir, name)
		if fi, err := safefile.Stat(file); err == nil && fi.Mode().IsRegular() {
			c.members[name] = pack.Member{Name: name, Path: file, Mode: 0o644}
		}
	}
}

// protocols has the names of protocols for nft. After a restart, kube-proxy reads its own
// rules again: without the names, it would treat them as foreign rules and remove them.
const protocols = "icmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\nsctp 132 SCTP\n"

// baseFiles returns the files that programs in an image expect of any system: users, a
// temporary directory, CA certificates, names of protocols.
func (t *debTree) baseFiles() ([]pack.Member, error) {
	certs, err := filepath.Glob(filepath.Join(t.dir, "usr/share/ca-certificates/*/*.crt"))
	if err != nil || len(certs) == 0 {
		return nil, errors.Join(errors.New("the ca-certificates package has no certificates"), err)
	}
	slices.Sort(certs)
	bundle, err := concatFiles(certs)
	if err != nil {
		return nil, err
	}
	t.markUsed("ca-certificates")
	text := func(name, content string) pack.Member {
		return pack.Member{Name: name, Content: []byte(content), Mode: 0o644}
	}
	return []pack.Member{
		text("etc/passwd",
			"root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"),
		text("etc/group", "root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n"),
		text("etc/nsswitch.conf", "hosts: files dns\n"),
		text("etc/protocols", protocols),
		text("etc/ssl/certs/ca-certificates.crt", string(bundle)),
		{Name: "tmp", Dir: true, Mode: 0o777, Sticky: true},
	}, nil
}
