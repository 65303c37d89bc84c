package copies

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/internal/node/op"
)

const (
	// dialTime limits connecting to a machine and logging in.
	dialTime = 30 * time.Second
	// silence is how long a connection may be idle.
	silence = 2 * time.Minute
	// chunk is the size of the write buffer.
	chunk = 1 << 20
)

// A machine is a directory of another machine over SFTP.
type machine struct {
	ssh  *ssh.Client
	sftp *sftp.Client
	dir  string
	stop func() bool
}

// keyKinds are the host key algorithms by kind of key.
var keyKinds = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256},
	{ssh.KeyAlgoECDSA384},
	{ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

// errOtherKey means that a machine presents another host key than the pinned one.
var errOtherKey = errors.New("another host key")

// dialSSH connects to a machine with a pinned host key. A machine has several host keys and
// presents the one of the requested kind, so dial tries each possible kind.
func dialSSH(ctx context.Context, to op.CopySSH, key []byte) (Target, error) {
	signer, err := ssh.ParsePrivateKey(append(bytes.TrimSpace(key), '\n'))
	if err != nil {
		return nil, errors.New("the private key cannot be used: " + strings.TrimPrefix(err.Error(), "ssh: "))
	}
	at := net.JoinHostPort(to.Address, strconv.Itoa(to.Port))
	var shown []string
	for _, kinds := range hostKeyKinds(to.HostKey) {
		config := &ssh.ClientConfig{
			User: to.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyAlgorithms: kinds, Timeout: dialTime,
			HostKeyCallback: func(_ string, _ net.Addr, shows ssh.PublicKey) error {
				if isPinned(to.HostKey, shows) {
					return nil
				}
				shown = append(shown, shows.Type()+" "+ssh.FingerprintSHA256(shows))
				return errOtherKey
			},
		}
		m, err := openSFTP(ctx, at, config, to.Directory)
		var none *ssh.AlgorithmNegotiationError
		if err == nil || !errors.Is(err, errOtherKey) && !errors.As(err, &none) {
			return m, err
		}
	}
	return nil, fmt.Errorf("%s has another host key than hostKey: it presents %s",
		at, cmp.Or(strings.Join(shown, ", "), "no key of that kind"))
}

// hostKeyKinds returns the kinds that a pinned key may have.
func hostKeyKinds(want string) [][]string {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(want))
	if err != nil {
		return keyKinds
	}
	return slices.DeleteFunc(slices.Clone(keyKinds), func(kinds []string) bool {
		return kinds[0] != key.Type() && (key.Type() != ssh.KeyAlgoRSA || kinds[0] != ssh.KeyAlgoRSASHA512)
	})
}

// isPinned reports whether a key is the pinned one.
func isPinned(want string, is ssh.PublicKey) bool {
	if strings.HasPrefix(want, "SHA256:") {
		return ssh.FingerprintSHA256(is) == strings.TrimRight(want, "=")
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(want))
	return err == nil && bytes.Equal(key.Marshal(), is.Marshal())
}

func openSFTP(ctx context.Context, at string, config *ssh.ClientConfig, dir string) (Target, error) {
	dialer := net.Dialer{Timeout: dialTime}
	raw, err := dialer.DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // makes pending calls return an error
	fail := func(err error) (Target, error) {
		stop()
		return nil, errors.Join(err, ignoreClosed(raw.Close()))
	}
	conn, chans, reqs, err := ssh.NewClientConn(deadlineConn{raw}, at, config)
	if err != nil {
		return fail(err)
	}
	m := &machine{ssh: ssh.NewClient(conn, chans, reqs), dir: dir, stop: stop}
	if m.sftp, err = sftp.NewClient(m.ssh, sftp.UseConcurrentWrites(true)); err != nil {
		return fail(fmt.Errorf("%s does not support SFTP: %w", at, err))
	}
	return m, nil
}

// deadlineConn is a connection that ends after a period without any data in either
// direction.
type deadlineConn struct{ net.Conn }

func (c deadlineConn) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c deadlineConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (m *machine) Close() error {
	m.stop()
	return errors.Join(ignoreClosed(m.sftp.Close()), ignoreClosed(m.ssh.Close()))
}

// ignoreClosed drops errors that only report that the connection is already closed.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (m *machine) pathOf(name string) string { return path.Join(m.dir, path.Base(name)) }

func (m *machine) List(ctx context.Context, _ string) (out []File, err error) {
	infos, err := m.sftp.ReadDirContext(ctx, m.dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.dir, err)
	}
	for _, info := range infos {
		if info.Mode().IsRegular() {
			out = append(out, File{Name: info.Name(), Bytes: info.Size(), Modified: info.ModTime().UTC()})
		}
	}
	return out, nil
}

func (m *machine) Fetch(_ context.Context, name string, to io.Writer) (err error) {
	f, err := m.sftp.Open(m.pathOf(name))
	if err != nil {
		return fmt.Errorf("%s: %w", m.pathOf(name), err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteTo(to)
	return err
}

func (m *machine) Put(ctx context.Context, name string, write func(io.Writer) error) (err error) {
	part := newPartName(name)
	f, err := m.sftp.OpenFile(m.pathOf(part), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return fmt.Errorf("writing %s: %w", m.pathOf(part), err)
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = errors.Join(err, m.Remove(ctx, part))
		}
	}()
	wrote := newCounter(f)
	many := bufio.NewWriterSize(wrote, chunk)
	err = errors.Join(write(many), many.Flush())
	if _, can := m.sftp.HasExtension("fsync@openssh.com"); can && err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	back := newCounter(io.Discard)
	if err := errors.Join(m.Fetch(ctx, part, back), wrote.compareReadBack(back)); err != nil {
		return err
	}
	if _, can := m.sftp.HasExtension("posix-rename@openssh.com"); can {
		return m.sftp.PosixRename(m.pathOf(part), m.pathOf(name))
	}
	return m.sftp.Rename(m.pathOf(part), m.pathOf(name))
}

func (m *machine) Remove(_ context.Context, name string) error {
	if err := m.sftp.Remove(m.pathOf(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
