package ssh

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // ssh names connections by it
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/sshconfig"
)

// maxHops limits the number of jump hosts.
const maxHops = 8

// route is the server of a host, with its jump hosts in the order of the logins.
type route struct {
	hops []endpoint
	to   endpoint
}

// ResolveLogin returns how Connect would log in to host, without doing so.
func (d *Dialer) ResolveLogin(host v1alpha1.Host, opts remote.Options) (remote.Login, error) {
	opts, err := completeOptions(opts)
	if err != nil {
		return remote.Login{}, err
	}
	r, err := resolveRoute(host, opts)
	if err != nil {
		return remote.Login{}, err
	}
	login := remote.Login{User: r.to.user, Address: r.to.address, Port: r.to.port, From: r.to.from}
	for _, hop := range r.hops {
		login.Via = append(login.Via, hop.user+"@"+hop.hostAndPort())
		for _, d := range hop.from {
			login.ViaFrom = append(login.ViaFrom, remote.Decision{Setting: "bastion " + d.Setting, By: d.By})
		}
	}
	return login, nil
}

// ListKnownKeys returns the known keys of a host and its jump hosts as lines of a known_hosts file.
// Connect uses no others. The first connection can add one.
func (d *Dialer) ListKnownKeys(host v1alpha1.Host, opts remote.Options) ([]string, error) {
	opts, err := completeOptions(opts)
	if err != nil {
		return nil, err
	}
	r, err := resolveRoute(host, opts)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, to := range append(r.hops, r.to) {
		k := &hostKeys{to: to, opts: opts}
		if err := k.readEntries(); err != nil {
			return nil, err
		}
		lines = append(lines, k.trust.format(to.hostAndPort())...)
	}
	return lines, nil
}

// resolveRoute finds the route to a host. The cluster file decides; what it leaves
// open is taken from ~/.ssh/config, and then from the defaults.
func resolveRoute(host v1alpha1.Host, opts remote.Options) (route, error) {
	s := host.SSH
	to := endpoint{
		host: host.Name, address: host.Address, port: s.Port, user: s.User, hostKey: s.HostKey,
		login: login{
			keyFile: s.PrivateKeyFile, passphrase: s.PassphraseFrom, password: s.Password, passwordFrom: s.PasswordFrom,
			agent: s.Agent != nil && *s.Agent,
		},
	}
	to, jump, err := to.withSSHConfig(opts, s.Bastion == nil)
	if err != nil {
		return route{}, err
	}
	if via := s.Bastion; via != nil {
		jump = []endpoint{{
			host: host.Name, address: via.Address, port: via.Port, user: via.User, hostKey: via.HostKey,
			login: login{keyFile: via.PrivateKeyFile, passphrase: via.PassphraseFrom, passwordFrom: via.PasswordFrom},
		}}
		to.from = append(to.from, remote.Decision{Setting: "bastion", By: remote.ByClusterFile})
	}
	hops, err := resolveJumps(jump, opts, 0, s.Bastion == nil)
	return route{hops: hops, to: to}, err
}

// resolveJumps resolves jump hosts. As in ssh, the first one can have its own jump hosts; the
// bastion of the cluster file has none.
func resolveJumps(jump []endpoint, opts remote.Options, depth int, more bool) ([]endpoint, error) {
	var out []endpoint
	for i, hop := range jump {
		hop, before, err := hop.withSSHConfig(opts, more && i == 0)
		if err == nil && depth+len(jump)+len(before) > maxHops {
			err = hop.newError(remote.ConfigUnusable, fmt.Sprintf("there are more than %d jump hosts before %s", maxHops, hop.host),
				"check ProxyJump in ~/.ssh/config for a loop", nil)
		}
		if err != nil {
			return nil, bastionError(err, hop.host)
		}
		earlier, err := resolveJumps(before, opts, depth+len(jump), true)
		if err != nil {
			return nil, err
		}
		out = append(append(out, earlier...), hop)
	}
	return out, nil
}

// withSSHConfig fills settings that the cluster file leaves open from ~/.ssh/config, and
// returns its jump hosts, if they are wanted.
func (e endpoint) withSSHConfig(opts remote.Options, jumps bool) (endpoint, []endpoint, error) {
	q := sshconfig.Query{
		Host: e.address, User: e.user, DefaultUser: e.withDefaults().user, LocalUser: localUser(opts.Home), Home: opts.Home,
		Read: func(path string) ([]byte, error) { return readConfig(opts.Home, path) },
	}
	c := &config{endpoint: e, home: opts.Home, local: q.LocalUser, given: e.address}
	var err error
	c.Settings, err = sshconfig.LookUpHost(filepath.Join(opts.Home, ".ssh", "config"), q)
	if err != nil && e.isSettled(jumps) {
		c.Settings, c.note = sshconfig.Settings{}, "; the SSH configuration is not used: "+err.Error()
		err = nil
	}
	if err == nil {
		err = c.applySettings(jumps)
	}
	var done *remote.Error
	if err != nil && !errors.As(err, &done) {
		err = e.newError(remote.ConfigUnusable, "the SSH configuration cannot be used: "+err.Error(),
			"correct that line or the permissions of the file; run `ssh -G "+e.address+"` to see how ssh reads it", err)
	}
	return c.endpoint.withDefaults(), c.jump, err
}

// isSettled reports whether the cluster file sets everything that ~/.ssh/config could set.
func (e endpoint) isSettled(jumps bool) bool {
	return e.user != "" && e.port != 0 && e.login != login{} && e.hostKey != "" && !jumps
}

// config is a server with its settings from ~/.ssh/config.
type config struct {
	endpoint
	sshconfig.Settings
	home, local string
	given       string // the address, before HostName
	jump        []endpoint
}

// applySettings takes the settings that the cluster file leaves open. Credentials are
// one setting: a key or password in the cluster file is used alone.
func (c *config) applySettings(jumps bool) error {
	if err := c.checkDecided(jumps); err != nil {
		return err
	}
	if err := c.setAddress(); err != nil {
		return err
	}
	c.setKeys()
	if c.hostKey == "" {
		c.setKnownHosts()
	}
	if c.ProxyCommand.From.Line > 0 && !strings.EqualFold(c.ProxyCommand.Text, "none") {
		c.note = "; the ProxyCommand in " + c.ProxyCommand.From.String() + " is not run: use ProxyJump or ssh.bastion"
	}
	if !jumps || c.ProxyJump.From.Line == 0 || strings.EqualFold(c.ProxyJump.Text, "none") {
		return nil
	}
	return c.parseJumps()
}

// checkDecided returns an error if a setting depends on criteria that Slipway does not
// evaluate, unless the cluster file sets it.
func (c *config) checkDecided(jumps bool) error {
	noLogin := c.login == login{}
	for _, o := range []struct {
		option, field string
		open          bool
	}{
		{"hostname", "address", true},
		{"user", "ssh.user", c.user == ""},
		{"port", "ssh.port", c.port == 0},
		{"identityfile", "ssh.privateKeyFile", noLogin},
		{"identitiesonly", "ssh.privateKeyFile", noLogin},
		{"userknownhostsfile", "ssh.hostKey", c.hostKey == ""},
		{"hostkeyalias", "ssh.hostKey", c.hostKey == ""},
		{"proxyjump", "ssh.bastion", jumps},
	} {
		at, undecided := c.UndecidedBy(o.option)
		if !undecided || !o.open {
			continue
		}
		remedy := "set " + o.field + " in the cluster file"
		if o.option == "hostname" {
			remedy = "move this HostName to a Host or Match host section"
		}
		return c.newError(remote.ConfigUnusable,
			fmt.Sprintf("%s is a Match that Slipway does not evaluate, and it can set %s for %s", at, o.option, c.given), remedy, nil)
	}
	return nil
}

// setAddress sets user, address and port.
func (c *config) setAddress() error {
	from := func(setting string, given bool, v sshconfig.Value) {
		by := remote.ByDefault
		switch {
		case given:
			by = remote.ByClusterFile
		case v.From.Line > 0:
			by = v.From.String()
		}
		c.from = append(c.from, remote.Decision{Setting: setting, By: by})
	}
	from("user", c.user != "", c.User)
	if c.user == "" {
		c.user = c.User.Text
	}
	if c.HostName.From.Line > 0 {
		name, err := sshconfig.ExpandTokens(c.HostName, map[byte]string{'h': c.address}, nil)
		if err != nil {
			return err
		}
		c.address = strings.ToLower(name)
	}
	from("address", c.HostName.From.Line == 0, c.HostName)
	from("port", c.port != 0, c.Port)
	if c.port == 0 && c.Port.From.Line > 0 {
		port, err := strconv.ParseUint(c.Port.Text, 10, 16)
		if err != nil || port == 0 {
			return &sshconfig.Error{At: c.Port.From, Err: errors.New("the port is not a number from 1 to 65535")}
		}
		c.port = int(port)
	}
	return nil
}

// setKeys sets the keys for the login, if the cluster file names no credentials.
func (c *config) setKeys() {
	if c.login != (login{}) {
		c.from = append(c.from, remote.Decision{Setting: "credentials", By: remote.ByClusterFile})
		return
	}
	for _, v := range c.Unused {
		c.identities.notes = append(c.identities.notes, "the "+v.Text+" in "+v.From.String()+" is ignored")
	}
	c.identities.only = strings.EqualFold(c.IdentitiesOnly.Text, "yes")
	for _, v := range c.IdentityFile {
		if strings.EqualFold(v.Text, "none") {
			continue
		}
		path, err := c.expandValue(v)
		if err != nil {
			c.identities.notes = append(c.identities.notes, "this IdentityFile is ignored: "+err.Error())
			continue
		}
		c.identities.files = append(c.identities.files, path)
		c.from = append(c.from, remote.Decision{Setting: "key", By: v.From.String()})
	}
}

// setKnownHosts sets the known_hosts files, and the name of the server in them.
func (c *config) setKnownHosts() {
	c.alias = c.HostKeyAlias.Text
	for _, v := range c.UserKnownHostsFile {
		path, err := c.expandValue(v)
		if err != nil {
			c.knownNote += "; this UserKnownHostsFile is ignored: " + err.Error()
			path = os.DevNull
		}
		c.knownHosts = append(c.knownHosts, path)
	}
}

// expandValue returns a path from ~/.ssh/config.
func (c *config) expandValue(v sshconfig.Value) (string, error) {
	v.Text = sshconfig.ExpandTilde(v.Text, c.home)
	path, err := sshconfig.ExpandTokens(v, c.pathTokens(), os.LookupEnv)
	if err != nil || strings.EqualFold(path, "none") {
		return os.DevNull, err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.home, path)
	}
	return path, nil
}

// pathTokens returns the tokens of ssh_config(5) for file names. Tokens that are not known
// here are left out.
func (c *config) pathTokens() map[byte]string {
	to := c.withDefaults()
	port, jump := strconv.Itoa(to.port), c.ProxyJump.Text
	if strings.EqualFold(jump, "none") {
		jump = ""
	}
	out := map[byte]string{
		'd': c.home, 'h': c.address, 'j': jump, 'k': cmp.Or(c.HostKeyAlias.Text, c.given), 'n': c.given, 'p': port, 'r': to.user, 'u': c.local,
	}
	if uid, err := ownerOf(c.home); err == nil {
		out['i'] = strconv.Itoa(uid)
	}
	if here, err := os.Hostname(); err == nil {
		out['l'] = here
		out['L'], _, _ = strings.Cut(here, ".")
		out['C'] = fmt.Sprintf("%x", sha1.Sum([]byte(here+c.address+port+to.user+jump))) //nolint:gosec // ssh's name of a connection
	}
	return out
}

// parseJumps parses the jump hosts: [user@]host[:port], or a URI, separated by commas.
func (c *config) parseJumps() error {
	to := c.withDefaults()
	text, err := sshconfig.ExpandTokens(c.ProxyJump,
		map[byte]string{'h': c.address, 'n': c.given, 'p': strconv.Itoa(to.port), 'r': to.user}, nil)
	if err != nil {
		return err
	}
	for hop := range strings.SplitSeq(text, ",") {
		via, err := jumpHost(strings.TrimSpace(hop))
		if err != nil {
			return &sshconfig.Error{At: c.ProxyJump.From, Err: err}
		}
		via.host, via.usual = c.host, c.local
		c.jump = append(c.jump, via)
	}
	c.from = append(c.from, remote.Decision{Setting: "bastion", By: c.ProxyJump.From.String()})
	return nil
}

func jumpHost(text string) (endpoint, error) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "ssh://"), "/")
	var to endpoint
	if at := strings.LastIndex(text, "@"); at >= 0 {
		to.user, text = text[:at], text[at+1:]
	}
	to.address = text
	if colon := strings.LastIndex(text, ":"); colon >= 0 &&
		(strings.Count(text, ":") == 1 || strings.HasPrefix(text, "[") && text[colon-1] == ']') {
		port, err := strconv.ParseUint(text[colon+1:], 10, 16)
		if err != nil || port == 0 {
			return to, errors.New("ProxyJump has a port that is not a number from 1 to 65535")
		}
		to.address, to.port = text[:colon], int(port)
	}
	to.address = strings.Trim(to.address, "[]")
	if to.address == "" {
		return to, errors.New("ProxyJump does not name a host")
	}
	return to, nil
}

// localUser returns the name of the owner of the home directory: under sudo, the caller.
// "" means unknown.
func localUser(home string) string {
	uid, err := ownerOf(home)
	if err != nil {
		return ""
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.Username
}

// ownerOf returns the user ID of the owner of the home directory.
func ownerOf(home string) (uid int, err error) {
	of, err := fileowner.OwnerOf(home)
	if err != nil || of == nil {
		return 0, err
	}
	return of.UID, nil
}
