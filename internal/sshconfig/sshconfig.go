// Package sshconfig reads OpenSSH client configuration files (ssh_config(5)) and returns
// the settings of one host that Slipway uses. It runs no program: neither ProxyCommand
// nor Match exec.
package sshconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Query names the host to look up, and the inputs of the lookup.
type Query struct {
	// Host is the name or address, as it would be passed to ssh.
	Host string
	// User is the login user, if it is already known.
	User string
	// DefaultUser is the login user if nothing sets it.
	DefaultUser string
	// LocalUser is the name of the user who runs the program.
	LocalUser string
	// Home is the home directory of that user, for "~" and relative paths of Include.
	Home string
	// Read returns the content of a file. The error fs.ErrNotExist means that the file
	// does not exist.
	Read func(path string) ([]byte, error)
}

// A Value is a setting, and the place that sets it. The zero value is not set.
type Value struct {
	Text string
	From Place
}

// A Place is a line of a file.
type Place struct {
	File string
	Line int // from 1; 0 means no place
}

func (p Place) String() string { return fmt.Sprintf("%s line %d", p.File, p.Line) }

// Settings has the settings of a host: the first value of each, as in ssh, and all values
// of IdentityFile. Tokens and "~" are not expanded yet.
type Settings struct {
	HostName, User, Port, HostKeyAlias Value
	IdentitiesOnly                     Value
	ProxyJump, ProxyCommand            Value // only the first of the two
	IdentityFile, UserKnownHostsFile   []Value
	Unused                             []Value // options that ssh uses for the login and Slipway does not, by name

	undecided map[string]Place
}

// UndecidedBy returns the Match line that may set an option for this host, by its name in
// lower case. Such a line has a criterion that Slipway does not evaluate, such as exec.
func (s *Settings) UndecidedBy(option string) (Place, bool) {
	p, ok := s.undecided[option]
	return p, ok
}

const (
	maxDepth = 16      // of Include, as in ssh
	maxLines = 100_000 // of one lookup, over all files
)

// LookUpHost reads a file, and the files that it includes. A missing file has no settings.
func LookUpHost(file string, q Query) (Settings, error) {
	r := reader{Query: q, settings: Settings{undecided: map[string]Place{}}}
	err := r.readPass(file)
	if err == nil && r.wantFinal { // ssh also reads all of it once more
		r.final = true
		err = r.readPass(file)
	}
	return r.settings, err
}

type reader struct {
	Query
	settings  Settings
	wantFinal bool // a Match line has the word "final"
	final     bool // this is the second pass
	lines     int
}

func (r *reader) readPass(file string) error {
	r.lines = 0
	err := r.readFile(file, 0, yes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readFile reads one file; active is the state of the line that includes it.
func (r *reader) readFile(name string, depth int, active answer) error {
	raw, err := r.Read(name)
	if err != nil {
		return err
	}
	within := active
	for i, text := range strings.Split(string(raw), "\n") {
		at := Place{File: name, Line: i + 1}
		if r.lines++; r.lines > maxLines {
			return newError(at, "the SSH configuration has more than %d lines", maxLines)
		}
		key, args, err := splitLine(text)
		switch {
		case err != nil:
			return newError(at, "%w", err)
		case key == "":
			continue
		case len(args) == 0 && used[key]:
			return newError(at, "the keyword has no value")
		}
		switch key {
		case "host":
			within = active.andInner(r.matchHosts(args), at)
		case "match":
			is, err := r.evaluateMatch(args, at)
			if err != nil {
				return err
			}
			within = active.andInner(is, at)
		case "include":
			if err := r.includeFiles(args, depth, within, at); err != nil {
				return err
			}
		default:
			r.setOption(key, args, within, at)
		}
	}
	return nil
}

// used lists the keywords that Slipway uses; ssh has many more.
var used = map[string]bool{
	"host": true, "match": true, "include": true, "hostname": true, "user": true, "port": true, "identityfile": true,
	"identitiesonly": true, "userknownhostsfile": true, "hostkeyalias": true, "proxyjump": true, "proxycommand": true,
}

// unused lists keywords that affect the login of ssh and that Slipway does not use.
var unused = map[string]string{"certificatefile": "CertificateFile", "identityagent": "IdentityAgent"}

// setOption keeps the first value of an option.
func (r *reader) setOption(key string, args []string, active answer, at Place) {
	s := &r.settings
	if name := unused[key]; name != "" && active.is == isYes && !hasValue(s.Unused, name) {
		s.Unused = append(s.Unused, Value{name, at})
	}
	single := map[string]*Value{
		"hostname": &s.HostName, "user": &s.User, "port": &s.Port, "hostkeyalias": &s.HostKeyAlias,
		"identitiesonly": &s.IdentitiesOnly, "proxyjump": &s.ProxyJump, "proxycommand": &s.ProxyCommand,
	}
	if !used[key] || active.is == no || key == "hostname" && r.final { // ssh decides that name after its first pass
		return
	}
	field, one := single[key]
	if one && field.From.Line > 0 || key == "userknownhostsfile" && len(s.UserKnownHostsFile) > 0 {
		return
	}
	if (key == "proxyjump" || key == "proxycommand") && s.ProxyJump.From.Line+s.ProxyCommand.From.Line > 0 {
		return
	}
	if active.is == unknown {
		if _, known := s.undecided[key]; !known {
			s.undecided[key] = active.by
		}
		return
	}
	switch {
	case key == "proxycommand":
		field.Text, field.From = strings.Join(args, " "), at
	case one:
		field.Text, field.From = args[0], at
	case key == "identityfile":
		if !hasValue(s.IdentityFile, args[0]) { // a second pass finds it again
			s.IdentityFile = append(s.IdentityFile, Value{args[0], at})
		}
	default:
		for _, a := range args {
			s.UserKnownHostsFile = append(s.UserKnownHostsFile, Value{a, at})
		}
	}
}

func hasValue(list []Value, text string) bool {
	for _, v := range list {
		if v.Text == text {
			return true
		}
	}
	return false
}

// includeFiles reads the files that patterns name, in the order of their names.
func (r *reader) includeFiles(patterns []string, depth int, active answer, at Place) error {
	if depth+1 > maxDepth {
		return newError(at, "Include is nested more than %d times", maxDepth)
	}
	for _, p := range patterns {
		path := ExpandTilde(p, r.Home)
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.Home, ".ssh", path)
		}
		files, err := filepath.Glob(path)
		if err != nil {
			return newError(at, "Include has an invalid pattern")
		}
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.IsDir() { // ssh finds no line in it
				continue
			}
			err := r.readFile(file, depth+1, active)
			if errors.Is(err, fs.ErrNotExist) { // an endless link; ssh ignores it as well
				continue
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ExpandTilde expands a leading "~" to a home directory.
func ExpandTilde(path, home string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(home, path[1:])
	}
	return path
}

// ExpandTokens replaces the tokens of a value, such as %h, and ${NAME} with getenv, which is
// nil if ssh does not expand variables. Errors do not quote the value.
func ExpandTokens(v Value, tokens map[byte]string, getenv func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for text := v.Text; text != ""; {
		switch {
		case text[0] == '%':
			if len(text) < 2 {
				return "", newError(v.From, "a single %% must be written as %%%%")
			}
			by, known := tokens[text[1]]
			if text[1] == '%' {
				by, known = "%", true
			}
			if !known {
				return "", newError(v.From, "Slipway does not expand the token %s", strconv.Quote(text[:2]))
			}
			out.WriteString(by)
			text = text[2:]
		case getenv != nil && strings.HasPrefix(text, "${") && strings.Contains(text, "}"):
			name, rest, _ := strings.Cut(text[2:], "}")
			by, set := getenv(name)
			if !set {
				return "", newError(v.From, "an environment variable is not set")
			}
			out.WriteString(by)
			text = rest
		default:
			out.WriteByte(text[0])
			text = text[1:]
		}
	}
	return out.String(), nil
}

// An Error is a line that cannot be used. It does not quote the line, because the user
// may not be allowed to read its file.
type Error struct {
	At  Place
	Err error
}

func (e *Error) Error() string { return e.At.String() + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

func newError(at Place, format string, args ...any) error {
	return &Error{At: at, Err: fmt.Errorf(format, args...)}
}
