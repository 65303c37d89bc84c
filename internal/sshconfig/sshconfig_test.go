package sshconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// settingTexts are the settings as words, without their places.
func settingTexts(s Settings) map[string]string {
	out := map[string]string{}
	add := func(name string, values ...Value) {
		var words []string
		for _, v := range values {
			if v.From.Line > 0 {
				words = append(words, v.Text)
			}
		}
		if len(words) > 0 {
			out[name] = strings.Join(words, " ")
		}
	}
	add("hostname", s.HostName)
	add("user", s.User)
	add("port", s.Port)
	add("hostkeyalias", s.HostKeyAlias)
	add("identitiesonly", s.IdentitiesOnly)
	add("proxyjump", s.ProxyJump)
	add("proxycommand", s.ProxyCommand)
	add("identityfile", s.IdentityFile...)
	add("unused", s.Unused...)
	add("userknownhostsfile", s.UserKnownHostsFile...)
	return out
}

func TestLookup_ReturnsFirstValues(t *testing.T) {
	files := func(config string, more ...string) fstest.MapFS {
		m := fstest.MapFS{"home/.ssh/config": {Data: []byte(config)}}
		for i := 0; i+1 < len(more); i += 2 {
			m[strings.TrimPrefix(more[i], "/")] = &fstest.MapFile{Data: []byte(more[i+1])}
		}
		return m
	}
	tests := map[string]struct {
		reason string
		files  fstest.MapFS
		user   string
		want   map[string]string
		fails  string
	}{
		"no file": {"it says nothing", fstest.MapFS{}, "", map[string]string{}, ""},
		"first value": {
			"the first line that matches wins",
			files("Host web*\n User a\nHost *\n User b\n Port 2222\n"), "",
			map[string]string{"user": "a", "port": "2222"},
			"",
		},
		"before any Host": {"it is for all hosts", files("User a\nHost web1\n User b\n"), "", map[string]string{"user": "a"}, ""},
		"all keys": {
			"each IdentityFile counts",
			files("IdentityFile ~/a\nHost web1\nIdentityFile ~/b\nIdentityFile ~/a\n"), "",
			map[string]string{"identityfile": "~/a ~/b"},
			"",
		},
		"excluded": {"a pattern with ! wins", files("Host * !web1\n User a\n"), "", map[string]string{}, ""},
		"form": {
			"keywords in any case, =, quotes, comments",
			files("HOST=web1 # mine\n\tuSer = \"a b\"\r\n  HostName web.example.com#x\n # no\n UserKnownHostsFile a 'b c' # d\n"),
			"",
			map[string]string{"user": "a b", "hostname": "web.example.com#x", "userknownhostsfile": "a b c"},
			"",
		},
		"unknown words": {"ssh knows many more", files("ForwardAgent yes\nFuture \"x\nUser a\n"), "", map[string]string{"user": "a"}, ""},
		"jump or command": {
			"the first of the two", files("ProxyJump b\nProxyCommand nc \"%h\" %p\n"),
			"",
			map[string]string{"proxyjump": "b"},
			"",
		},
		"command or jump": {
			"the first of the two", files("ProxyCommand nc \"%h\" %p # x\nProxyJump b\n"), "",
			map[string]string{"proxycommand": `nc "%h" %p # x`},
			"",
		},
		"match all": {"like Host *", files("Match all\n User a\n"), "", map[string]string{"user": "a"}, ""},
		"match host": {
			"by the name that HostName gives",
			files("HostName 10.0.0.1\nMatch host web1\n User a\nMatch host 10.0.0.*,x\n User b\n"), "",
			map[string]string{"hostname": "10.0.0.1", "user": "b"},
			"",
		},
		"match originalhost": {
			"by the name given", files("HostName 10.0.0.1\nMatch originalhost=web1\n User a\n"),
			"",
			map[string]string{"hostname": "10.0.0.1", "user": "a"},
			"",
		},
		"match user": {
			"decided by the cluster file", files("Match user root\n Port 1\nMatch user a\n Port 2\n"),
			"a",
			map[string]string{"port": "2"},
			"",
		},
		"match user, usual": {
			"the user that is logged in as, and not the local one",
			files("Match user root localuser me\n Port 1\nMatch user me\n Port 2\n"), "",
			map[string]string{"port": "1"},
			"",
		},
		"match not": {
			"! turns a criterion around", files("Match !host web2 !user me\n Port 1\n"), "",
			map[string]string{"port": "1"},
			"",
		},
		"match final": {
			"as ssh: the file is read once more, and the first value stays",
			files("Match final\n User a\n Port 1\nMatch all\n User b\n"), "",
			map[string]string{"user": "b", "port": "1"},
			"",
		},
		"match exec, no": {
			"another criterion is false",
			files("Match host other exec \"true\"\n User a\nMatch exec true host other\n User b\n"), "",
			map[string]string{},
			"",
		},
		"include": {
			"relative to ~/.ssh, sorted, ~ is home",
			files("Include conf.d/* ~/more\nUser z\n", "/home/.ssh/conf.d/2", "User b\n", "/home/.ssh/conf.d/1",
				"Port 1\n", "/home/more", "HostName h\n"), "",
			map[string]string{"user": "b", "port": "1", "hostname": "h"},
			"",
		},
		"include in a Host": {
			"what is included is for that host alone",
			files("Host other\n Include x\nHost web1\n Include y\n", "/home/.ssh/x", "Host *\nUser a\n",
				"/home/.ssh/y", "Host other\nUser b\nHost *\nPort 1\n"), "",
			map[string]string{"port": "1"},
			"",
		},
		"after an include": {
			"a Host line in it does not go on",
			files("Include x\nUser a\n", "/home/.ssh/x", "Host other\n"), "",
			map[string]string{"user": "a"},
			"",
		},
		"include directory": {
			"it has no lines",
			files("Include conf.d/*\nUser z\n", "/home/.ssh/conf.d/old/1", "User a\n", "/home/.ssh/conf.d/2", "Port 1\n"),
			"",
			map[string]string{"user": "z", "port": "1"},
			"",
		},
		"name of a variable": {
			"HostName knows no variables", files("HostName ${X}\nMatch host *\n User a\n"), "",
			map[string]string{"hostname": "${X}", "user": "a"},
			"",
		},
		"unused": {
			"the first of each, where it is for the host",
			files("IdentityAgent a\nCertificateFile b\nCertificateFile c\nHost other\nIdentityAgent d\n"),
			"",
			map[string]string{"unused": "IdentityAgent CertificateFile"},
			"",
		},
		"include loop": {
			"bounded, as in ssh", files("Include config\n"), "", nil,
			"/home/.ssh/config line 1: Include is nested more than 16 times",
		},
		"unreadable include": {
			"half a configuration is none",
			files("Host other\nInclude secret\n", "/home/.ssh/secret", "locked"), "", nil, "permission denied",
		},
		"no value": {"with its line", files("\nUser\n"), "", nil, "/home/.ssh/config line 2: the keyword has no value"},
		"open quote": {
			"with its line, and without the text", files("User \"secret\n"), "", nil,
			"/home/.ssh/config line 1: a quote is not closed",
		},
		"match without":      {"with its line", files("Match host\n"), "", nil, "a Match criterion has no value"},
		"match all and more": {"as ssh has it", files("Match all host x\n"), "", nil, "cannot be combined"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			// Glob asks the real file system: the files are put there.
			root := t.TempDir()
			for name, f := range tc.files {
				path := filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, f.Data, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			q := Query{
				Host: "web1", User: tc.user, DefaultUser: "root", LocalUser: "me",
				Home: filepath.Join(root, "home"), Read: func(path string) ([]byte, error) {
					raw, err := os.ReadFile(path)
					if string(raw) == "locked" {
						return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
					}
					return raw, err
				},
			}
			got, err := LookUpHost(filepath.Join(q.Home, ".ssh/config"), q)
			if tc.fails != "" {
				if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), root, ""), tc.fails) || strings.Contains(err.Error(), "secret\n") {
					t.Errorf("%s: the error is %v, want %q", tc.reason, err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, settingTexts(got)); d != "" {
				t.Errorf("%s:\n%s", tc.reason, d)
			}
		})
	}
}

// TestUndecided_NamesUnknownMatches: what only a program or the network could tell is named where it
// matters, and nowhere else.
func TestUndecided_NamesUnknownMatches(t *testing.T) {
	const config = "Match host web1\n Port 1\n" +
		"Match host web1 exec \"touch /nowhere\"\n User a\n Port 2\n" +
		"Match user root localnetwork 10.0.0.0/8\n HostName x\n" +
		"Match host web1\n User b\n"
	q := Query{Host: "web1", DefaultUser: "me", LocalUser: "me", Home: "/h", Read: func(string) ([]byte, error) { return []byte(config), nil }}
	s, err := LookUpHost("c", q)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, option := range []string{"user", "port", "hostname"} {
		if at, undecided := s.UndecidedBy(option); undecided {
			got[option] = at.String()
		}
	}
	if d := cmp.Diff(map[string]string{"user": "c line 3"}, got); d != "" {
		t.Error(d)
	}
}

func TestExpand_ReplacesTokens(t *testing.T) {
	tokens := map[byte]string{'h': "host", 'd': "/home"}
	env := func(name string) (string, bool) { return "value", name == "SET" }
	for text, want := range map[string]string{
		"plain": "plain", "%d/%h.%%": "/home/host.%", "a${SET}b": "avalueb", "${open": "${open",
		"%C": `f line 3: Slipway does not expand the token "%C"`, "100%": "f line 3: a single % must be written as %%",
		"${UNSET}": "f line 3: an environment variable is not set",
	} {
		got, err := ExpandTokens(Value{text, Place{"f", 3}}, tokens, env)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestLookup_AgreesWithSSH compares with ssh itself, over configurations made at random.
func TestLookup_AgreesWithSSH(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	dir := t.TempDir()
	included := filepath.Join(dir, "included")
	line := func() string {
		switch random.IntN(9) {
		case 0, 1:
			return "Host " + pick("web1", "web?", "*", "other", "10.*", "!web1 *", "!other *", "\"web1\"", "other web1")
		case 2, 3:
			return "Match " +
				pick("all", "host web1", "host 10.0.0.1,web2", "originalhost web*", "!host web1", "user admin",
					"user "+me.Username, "localuser "+me.Username,
					"final", "final all", "host other user admin", "host web1 !user admin", "canonical",
					"!final host web1", "final host 10.0.0.1", "localuser nobody", "host WEB1")
		case 4:
			return pick("User admin", "user=bob", "User \"carol\"", "  User\tadmin # c")
		case 5:
			return pick("HostName 10.0.0.1", "HostName %h.example", "HostName web2", "HostName ${none}.x")
		case 6:
			return pick("Port 2222", "Port = 2200", "ProxyJump jump", "ProxyCommand nc %h", "HostKeyAlias alias", "IdentitiesOnly yes")
		case 7:
			return pick("IdentityFile /k1", "IdentityFile \"/k 2\"", "UserKnownHostsFile /a /b",
				"UserKnownHostsFile '/c d'", "ForwardAgent yes", "# nothing", "")
		}
		return "Include " + pick(included, filepath.Join(dir, "incl*"), filepath.Join(dir, "none"))
	}
	text := func(without string) string {
		var b strings.Builder
		for range 2 + random.IntN(12) {
			if l := line(); without == "" || !strings.HasPrefix(l, without) {
				b.WriteString(l + "\n")
			}
		}
		return b.String()
	}
	for range 40 {
		config := filepath.Join(dir, "config")
		main, more := text(""), text("Include")
		if err := errors.Join(os.WriteFile(config, []byte(main), 0o600), os.WriteFile(included, []byte(more), 0o600)); err != nil {
			t.Fatal(err)
		}
		want := askSSH(t, config)
		s, err := LookUpHost(config, Query{Host: "web1", DefaultUser: me.Username, LocalUser: me.Username, Home: dir, Read: os.ReadFile})
		if err != nil {
			t.Fatalf("%v in:\n%s", err, main)
		}
		name, err := ExpandTokens(s.HostName, map[byte]string{'h': "web1"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{"hostname": "web1", "user": me.Username, "port": "22"}
		for key, value := range settingTexts(s) {
			got[key] = value
		}
		if name != "" {
			got["hostname"] = name
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("ssh (-) and we (+) differ:\n%s\nin:\n%s\nincluded:\n%s", d, main, more)
		}
	}
}

// askSSH returns what ssh would do.
func askSSH(t *testing.T, config string) map[string]string {
	t.Helper()
	var errw bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "ssh", "-G", "-F", config, "web1")
	cmd.Stderr = &errw
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("ssh -G: %v: %s", err, errw.String())
	}
	out := map[string]string{}
	for l := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(strings.TrimSpace(l), " ")
		switch key {
		case "hostname", "user", "port", "hostkeyalias", "proxyjump", "proxycommand":
			out[key] = value
		case "identitiesonly":
			if value == "yes" {
				out[key] = value
			}
		case "identityfile":
			if !strings.HasPrefix(value, "~/.ssh/id_") {
				out[key] = strings.TrimSpace(fmt.Sprint(out[key], " ", value))
			}
		case "userknownhostsfile":
			if !strings.HasPrefix(value, "/root/.ssh") && !strings.Contains(value, ".ssh/known_hosts") {
				out[key] = value
			}
		}
	}
	return out
}

// FuzzLookup: any text ends with settings or an error, and an error does not
// quote it.
func FuzzLookup(f *testing.F) {
	for _, text := range []string{
		"Host a\nUser b\n", "Match host a exec \"x\"\nPort 1", "Match !final=", "Include config", "User \"a\\\" b\"",
		"=", "Host", "Match all all",
		"IdentityFile '\nPort", "Match user", "ProxyCommand", "\x00=\x00", "Host ***********************a\nUser x",
	} {
		f.Add(text, "a")
	}
	f.Fuzz(func(t *testing.T, text, host string) {
		reads := 0
		q := Query{Host: host, LocalUser: "me", Home: "/nowhere", Read: func(string) ([]byte, error) { reads++; return []byte(text), nil }}
		s, err := LookUpHost("config", q)
		var at *Error
		if err != nil && (!errors.As(err, &at) || at.At.Line < 1) {
			t.Errorf("the error has no place: %v", err)
		}
		if reads > 2 {
			t.Errorf("%d files were read", reads)
		}
		for _, v := range append(s.IdentityFile, s.User, s.HostName) {
			if v.From.Line > strings.Count(text, "\n")+1 {
				t.Errorf("%v is of no line", v)
			}
		}
	})
}
