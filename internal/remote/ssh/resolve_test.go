package ssh_test

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	gossh "golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/remote/ssh"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestResolve_PrefersTheClusterFile: the cluster file decides, then ~/.ssh/config, then the defaults;
// and what decided is said.
func TestResolve_PrefersTheClusterFile(t *testing.T) {
	yes := true
	tests := map[string]struct {
		reason, config string
		address        string
		login          v1alpha1.SSH
		want           string // of Login.String, without the home
		is             remote.Reason
		says           string
	}{
		"no config": {
			"the defaults", "", "10.0.0.1",
			v1alpha1.SSH{},
			"root@10.0.0.1 port 22 (user: default, address: cluster file, port: default)", "", "",
		},
		"all from config": {
			"an alias", "Host web\n HostName 10.0.0.9\n User admin\n Port 2222\n IdentityFile ~/k\n",
			"web",
			v1alpha1.SSH{},
			"admin@10.0.0.9 port 2222 (user: ~/.ssh/config line 3, address: ~/.ssh/config line 2, port: ~/.ssh/config " +
				"line 4, key: ~/.ssh/config line 5)",
			"", "",
		},
		"file wins": {
			"explicit fields", "User admin\nPort 2222\nIdentityFile ~/k\nProxyJump jump\n", "10.0.0.1",
			v1alpha1.SSH{User: "bob", Port: 22, Agent: &yes, Bastion: &v1alpha1.Bastion{Address: "10.0.0.7", User: "j", Port: 23}},
			"bob@10.0.0.1 port 22 through j@10.0.0.7:23 (user: cluster file, address: cluster file, port: cluster " +
				"file, credentials: cluster file, bastion: cluster file)",
			"", "",
		},
		"old record": {
			"root and 22 that earlier versions filled in", "User admin\nPort 2222\n", "10.0.0.1",
			v1alpha1.SSH{User: "root", Port: 22},
			"root@10.0.0.1 port 22 (user: cluster file, address: cluster file, port: cluster file)", "", "",
		},
		"jumps": {
			"a chain, and the jump host's own settings",
			"Host h\n ProxyJump a@one,two:2200\nHost one\n Port 1111\n ProxyJump zero\nHost two\n User b\n ProxyJump " +
				"not-this\nHost zero\n HostName 10.0.0.10\n User root\n",
			"h",
			v1alpha1.SSH{},
			"root@h port 22 through root@10.0.0.10:22, a@one:1111, b@two:2200 (user: default, address: cluster file, " +
				"port: default, bastion: ~/.ssh/config line 2)",
			"", "",
		},
		"no jump": {
			"none", "Host h\n ProxyJump none\nHost *\n ProxyJump jump\n", "h",
			v1alpha1.SSH{},
			"root@h port 22 (user: default, address: cluster file, port: default)", "", "",
		},
		"jump of bastion": {
			"the file says the whole way; its user and port are the configuration's",
			"Host jump\n User j\n Port 24\n ProxyJump other\n", "h",
			v1alpha1.SSH{Bastion: &v1alpha1.Bastion{Address: "jump"}},
			"root@h port 22 through j@jump:24 (user: default, address: cluster file, port: default, bastion: cluster file)", "", "",
		},
		"uri": {
			"with an IPv6 address", "Host h\n ProxyJump ssh://x@[fd00::1]:24\n", "h",
			v1alpha1.SSH{},
			"root@h port 22 through x@[fd00::1]:24 (user: default, address: cluster file, port: default, bastion: ~/.ssh/config line 2)", "", "",
		},
		"jump loop": {
			"bounded", "Host *\n ProxyJump jump\n", "h",
			v1alpha1.SSH{},
			"", remote.ConfigUnusable,
			"there are more than 8 jump hosts before h1",
		},
		"command": {
			"it is not run", "ProxyCommand touch /tmp/no\n", "h",
			v1alpha1.SSH{},
			"root@h port 22 (user: default, address: cluster file, port: default)", "", "",
		},
		"match exec": {
			"no program decides", "Match exec \"touch /tmp/no\"\n User x\n", "h",
			v1alpha1.SSH{},
			"",
			remote.ConfigUnusable,
			"line 1 is a Match that Slipway does not evaluate, and it can set user for h; set ssh.user in the cluster file",
		},
		"match exec, told": {
			"the cluster file decides", "Match exec \"touch /tmp/no\"\n User x\n", "h",
			v1alpha1.SSH{User: "bob"},
			"bob@h port 22 (user: cluster file, address: cluster file, port: default)", "", "",
		},
		"port": {
			"the line is named and not quoted", "\nPort seven\n", "h",
			v1alpha1.SSH{},
			"",
			remote.ConfigUnusable, "config line 2: the port is not a number from 1 to 65535",
		},
		"no such token": {
			"that file alone is ignored", "IdentityFile %Q\nUserKnownHostsFile %Q\nIdentityFile /k\n", "h",
			v1alpha1.SSH{},
			"root@h port 22 (user: default, address: cluster file, port: default, key: ~/.ssh/config line 3)", "", "",
		},
		"variables": {
			"ssh knows none in HostName and ProxyJump",
			"Host h\n HostName ${HOME}\n ProxyJump b@${HOME}\nMatch host *\n User a\n", "h",
			v1alpha1.SSH{},
			"a@${home} port 22 through b@${HOME}:22 (user: ~/.ssh/config line 5, address: ~/.ssh/config line 2, port: " +
				"default, bastion: ~/.ssh/config line 3)",
			"", "",
		},
		"match user": {
			"who is logged in as", "Match user root\n Port 1\n", "h",
			v1alpha1.SSH{},
			"root@h port 1 (user: default, address: cluster file, port: ~/.ssh/config line 2)", "", "",
		},
		"unusable": {
			"with its line", "Port 1\nUser\n", "h",
			v1alpha1.SSH{User: "u", Port: 22, Agent: &yes, HostKey: "SHA256:x"},
			"", remote.ConfigUnusable,
			"config line 2: the keyword has no value",
		},
		"unusable, told": {
			"the cluster file decides all", "Port 1\nUser\n", "h",
			v1alpha1.SSH{
				User: "u", Port: 22, Agent: &yes, HostKey: "SHA256:x",
				Bastion: &v1alpha1.Bastion{Address: "b", User: "j", Port: 23, PrivateKeyFile: "/k", HostKey: "SHA256:y"},
			},
			"u@h port 22 through j@b:23 (user: cluster file, address: cluster file, port: cluster file, credentials: " +
				"cluster file, bastion: cluster file)",
			"", "",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			opts := testOptions(t)
			if tc.config != "" {
				writeFile(t, filepath.Join(opts.Home, ".ssh", "config"), []byte(tc.config))
			}
			var d ssh.Dialer
			got, err := d.ResolveLogin(v1alpha1.Host{Name: "h1", Address: tc.address, SSH: tc.login}, opts)
			if tc.is != "" {
				checkRefusal(t, err, tc.is, tc.says)
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if d := cmp.Diff(tc.want, strings.ReplaceAll(got.String(), opts.Home, "~")); d != "" {
				t.Errorf("%s:\n%s", tc.reason, d)
			}
		})
	}
}

// TestConfig_AllowsThePrivateGroup: as in Debian's ssh, the file may be writable by the private group
// of its owner, and by no other user.
func TestConfig_AllowsThePrivateGroup(t *testing.T) {
	for mode, says := range map[os.FileMode]string{
		0o600: "", 0o664: "", 0o606: "other users can write to it",
		0o666: "other users can write to it",
	} {
		t.Run(mode.String(), func(t *testing.T) {
			opts := testOptions(t)
			config := filepath.Join(opts.Home, ".ssh", "config")
			writeFile(t, config, []byte("User a\n"))
			if err := os.Chmod(config, mode); err != nil {
				t.Fatal(err)
			}
			var d ssh.Dialer
			got, err := d.ResolveLogin(v1alpha1.Host{Name: "h1", Address: "h"}, opts)
			if says != "" {
				checkRefusal(t, err, remote.ConfigUnusable, says)
				return
			}
			if err != nil || got.User != "a" {
				t.Errorf("the login is %v, %v", got, err)
			}
		})
	}
}

// TestLogin_NamesUnusedConfiguration: an error of a failed login names the unused parts of the
// configuration that may be the cause.
func TestLogin_NamesUnusedConfiguration(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	s := remotetest.StartServer(t, remotetest.Config{})
	key, _ := keyFile(t, t.TempDir(), "")
	for name, tc := range map[string]struct {
		config string
		login  v1alpha1.SSH
		is     remote.Reason
		says   string
	}{
		"certificate": {"\nCertificateFile c\n", v1alpha1.SSH{}, remote.KeyUnreadable, "the CertificateFile in ~/.ssh/config line 2 is ignored"},
		"agent":       {"IdentityAgent a\n", v1alpha1.SSH{}, remote.KeyUnreadable, "the IdentityAgent in ~/.ssh/config line 1 is ignored"},
		"key": {
			"IdentityFile %Q\n",
			v1alpha1.SSH{},
			remote.KeyUnreadable,
			`this IdentityFile is ignored: ~/.ssh/config line 1: Slipway does not expand the token "%Q"`,
		},
		"known hosts": {
			"UserKnownHostsFile %Q\n",
			v1alpha1.SSH{PrivateKeyFile: key},
			remote.HostKeyUnknown,
			`this UserKnownHostsFile is ignored: ~/.ssh/config line 1: Slipway does not expand the token "%Q"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions(t)
			opts.KnownHosts = ""
			writeFile(t, filepath.Join(opts.Home, ".ssh", "config"), []byte(tc.config))
			d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
			_, err := d.Connect(t.Context(), s.HostWith("h1", tc.login), opts)
			checkRefusal(t, err, tc.is, strings.ReplaceAll(tc.says, "~", opts.Home))
		})
	}
}

// TestJump_UsesTheLocalUser: a jump host is logged in to as the local user, as by ssh; a
// bastion of the cluster file as root.
func TestJump_UsesTheLocalUser(t *testing.T) {
	requireroot.Need(t, "the home is another user's")
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		t.Fatal(err)
	}
	opts := testOptions(t)
	config := filepath.Join(opts.Home, ".ssh", "config")
	writeFile(t, config, []byte("Host h\n ProxyJump jump,me@other\nMatch host jump user nobody\n Port 24\n"))
	for _, name := range []string{opts.Home, config} {
		if err := os.Lchown(name, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	var d ssh.Dialer
	for name, tc := range map[string]struct {
		login v1alpha1.SSH
		want  []string
	}{
		"ProxyJump": {v1alpha1.SSH{}, []string{"nobody@jump:24", "me@other:22"}},
		"bastion":   {v1alpha1.SSH{Bastion: &v1alpha1.Bastion{Address: "jump"}}, []string{"root@jump:22"}},
	} {
		got, err := d.ResolveLogin(v1alpha1.Host{Name: "h1", Address: "h", SSH: tc.login}, opts)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tc.want, got.Via); d != "" || got.User != "root" {
			t.Errorf("%s: the host's user is %s, and (-want +got):\n%s", name, got.User, d)
		}
	}
}

// TestConnect_FollowsTheConfig: an alias leads through a jump host to the host, with the
// keys and the lists of host keys that the configuration names.
func TestConnect_FollowsTheConfig(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	opts := testOptions(t)
	path, pub := keyFile(t, filepath.Join(opts.Home, "keys"), "")
	_, _ = keyFile(t, filepath.Join(opts.Home, ".ssh"), "") // the usual key is not tried
	users := []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}}
	s := remotetest.StartServer(t, remotetest.Config{Machine: remotetest.Machine{Handler: checkHandler}, Users: users})
	jump := remotetest.StartServer(t, remotetest.Config{Users: users})
	known := filepath.Join(opts.Home, "known hosts")
	config := "Host web\n HostName 127.0.0.1\n Port " + strconv.Itoa(s.Port()) + "\n ProxyJump jump\n HostKeyAlias web.example\n" +
		"Host jump\n HostName 127.0.0.1\n Port " + strconv.Itoa(jump.Port()) + "\n HostKeyAlias jump.example\n" +
		"Host *\n User root\n IdentityFile ~/keys/%n-none\n IdentityFile %d/keys/id_ed25519\n IdentitiesOnly yes\n UserKnownHostsFile \"" +
		known + "\"\n"
	writeFile(t, filepath.Join(opts.Home, ".ssh", "config"), []byte(config))
	writeFile(t, known, []byte("web.example "+authorizedKey(s.HostKey())+"\njump.example "+authorizedKey(jump.HostKey())+"\n"))
	opts.KnownHosts = ""
	d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	host := v1alpha1.Host{Name: "h1", Address: "web"}
	h, err := d.Connect(t.Context(), host, opts)
	if err != nil {
		t.Fatal(err)
	}
	checkHost(t, h)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if jump.LoginCount() != 1 {
		t.Errorf("%d logins on the jump host", jump.LoginCount())
	}
	writeFile(t, known, []byte("web.example "+authorizedKey(s.HostKey())+"\n@revoked jump.example "+authorizedKey(jump.HostKey())+"\n"))
	_, err = d.Connect(t.Context(), host, opts)
	checkRefusal(t, err, remote.HostKeyChanged, "the bastion: the host key")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = d.Connect(t.Context(), host, opts)
	checkRefusal(t, err, remote.KeyUnreadable, "no login method is available")
}

// TestConfig_RefusesUnreadableFilesUnderSudo: under sudo, root reads no file for the caller that the
// caller could not read.
func TestConfig_RefusesUnreadableFilesUnderSudo(t *testing.T) {
	requireroot.Need(t, "files of other users are made")
	t.Setenv("SSH_AUTH_SOCK", "")
	opts := testOptions(t)
	roots, _ := keyFile(t, filepath.Join(t.TempDir(), "root"), "")
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, []byte("root:x:0\n"))
	config := filepath.Join(opts.Home, ".ssh", "config")
	set := func(text string) {
		writeFile(t, config, []byte(text))
		for _, name := range []string{opts.Home, filepath.Dir(config), config} {
			if err := os.Lchown(name, 4711, 4711); err != nil {
				t.Fatal(err)
			}
		}
	}
	var d ssh.Dialer
	host := v1alpha1.Host{Name: "h1", Address: "127.0.0.1", SSH: v1alpha1.SSH{Port: 1}}
	set("Include " + secret + "\n")
	_, err := d.Connect(t.Context(), host, opts)
	checkRefusal(t, err, remote.ConfigUnusable, secret+": it belongs to user 0 instead of user 4711")
	set("IdentityFile " + roots + "\n")
	_, err = d.Connect(t.Context(), host, opts)
	checkRefusal(t, err, remote.KeyUnreadable, "it belongs to user 0 instead of user 4711")
	set("UserKnownHostsFile " + secret + "\nIdentityFile none\n")
	_, err = d.Connect(t.Context(), host, opts)
	checkRefusal(t, err, remote.HostKeyUnknown, "it belongs to user 0 instead of user 4711")
	set("User x\n")
	if err := os.Chmod(config, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = d.Connect(t.Context(), host, opts)
	checkRefusal(t, err, remote.ConfigUnusable, "other users can write to it")
	if err := errors.Join(os.Chmod(config, 0o664), os.Lchown(config, 4711, 4712)); err != nil {
		t.Fatal(err)
	}
	_, err = d.Connect(t.Context(), host, opts)
	checkRefusal(t, err, remote.ConfigUnusable, "other users can write to it")
}
