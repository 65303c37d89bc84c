package source

import (
	"path"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bundle/pack"
)

// The component nettools is a small root with nft, iptables and every library
// they load. Container images have it as a layer; a host unpacks it anywhere
// and runs the scripts in its directory "host".

// IPTablesNames returns the names under which the multi-call program of iptables can run.
func IPTablesNames() []string {
	return []string{"iptables", "iptables-restore", "iptables-save", "ip6tables", "ip6tables-restore", "ip6tables-save"}
}

// LibDir returns the directory in which Debian keeps the libraries of an architecture.
func LibDir(arch string) string {
	return "usr/lib/" + map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[arch]
}

// MergedPath returns the path of a file in a merged /usr, for a name below /bin, /sbin,
// /lib or /lib64, without the leading slash.
func MergedPath(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	first, _, _ := strings.Cut(name, "/")
	if slices.Contains([]string{"bin", "sbin", "lib", "lib64"}, first) {
		return "usr/" + name
	}
	return name
}

// RelativeLink returns a target for a symbolic link at name that stays inside its tree:
// an absolute target becomes relative.
func RelativeLink(name, target string) string {
	if !path.IsAbs(target) {
		return target
	}
	return strings.Repeat("../", strings.Count(name, "/")) + MergedPath(target)
}

// MergedLinks are the links of a merged /usr, and the directories that programs
// expect of any root.
func MergedLinks() []pack.Member {
	return []pack.Member{
		{Name: "bin", Link: "usr/bin"},
		{Name: "sbin", Link: "usr/sbin"},
		{Name: "lib", Link: "usr/lib"},
		{Name: "lib64", Link: "usr/lib64"},
		{Name: "usr/lib64", Dir: true},
		{Name: "usr/bin", Dir: true},
		{Name: "run", Dir: true},
	}
}

// HostTools are the links of a merged /usr, and scripts to run the programs on
// a host. Loader is the dynamic loader's name in the tree.
func HostTools(arch, loader string) []pack.Member {
	out := append(MergedLinks(),
		pack.Member{Name: "host/nft", Content: wrapperScript(LibDir(arch), loader, "nft", "")})
	for _, name := range IPTablesNames() {
		out = append(out, pack.Member{Name: "host/" + name, Content: wrapperScript(LibDir(arch), loader, "xtables-nft-multi", " "+name)})
	}
	return out
}

// wrapperScript returns a script that runs a program of the tree at any place, with the
// tree's own loader and libraries. The host may have other or older ones, or none.
func wrapperScript(lib, loader, program, name string) []byte {
	return []byte(`#!/bin/sh
self=$(readlink -f "$0")
root=${self%/host/*}
XTABLES_LIBDIR=$root/` + lib + `/xtables
export XTABLES_LIBDIR
exec "$root/` + loader + `" --library-path "$root/` + lib + `" "$root/usr/sbin/` + program + `"` + name + ` "$@"
`)
}
