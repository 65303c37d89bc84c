package bootstrap

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/internal/node/embedded"
)

var (
	errNeedsTTY      = errors.New("sudo needs a terminal")
	errSilentHost    = errors.New("the host does not answer")
	errWrongPassword = errors.New("sudo asked for the password again")
	errNoise         = fmt.Errorf("the host sent more than %d KiB before its answer", maxNoise>>10)
)

// A dialog is the bootstrap with one process. Each step has a time limit, and skipped
// output a size limit.
type dialog struct {
	proc    Process
	out     *bufio.Reader
	timeout time.Duration
	timer   *time.Timer
	stop    func() bool // stops watching the context

	prompt   string // the prompt of sudo
	password []byte

	greeted bool // the login shell has started sh
	noise   tail // the end of the skipped output
	tail    *tail
	heard   sync.WaitGroup // the reader of standard error

	mu    sync.Mutex
	root  bool  // sudo has given root privileges
	asked int   // how often sudo has asked for the password
	cause error // why the process was closed, if so
}

func newDialog(ctx context.Context, proc Process, timeout time.Duration) *dialog {
	d := &dialog{proc: proc, out: bufio.NewReaderSize(proc.Stdout(), 64<<10), timeout: timeout, tail: &tail{}}
	d.stop = context.AfterFunc(ctx, func() { d.abortWith(context.Cause(ctx)) })
	d.timer = time.AfterFunc(timeout, func() { d.abortWith(errSilentHost) })
	return d
}

// abortWith closes the process; pending reads and writes then fail.
func (d *dialog) abortWith(cause error) {
	d.mu.Lock()
	if d.cause == nil {
		d.cause = cause
	}
	d.mu.Unlock()
	_ = d.proc.Close()
}

// finishWatching stops watching and returns why the process was closed, if so.
func (d *dialog) finishWatching() error {
	d.timer.Stop()
	d.stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

func (d *dialog) noteProgress() { d.timer.Reset(d.timeout) }

func (d *dialog) sendText(text string) error {
	_, err := io.WriteString(d.proc, text)
	return err
}

// watchStderr keeps the end of standard error, and responds to the prompt of sudo there. It
// ends with the process.
func (d *dialog) watchStderr(answering bool) {
	d.heard.Go(func() {
		buf := make([]byte, 4096)
		var line []byte
		for {
			n, err := d.proc.Stderr().Read(buf)
			d.tail.addOutput(buf[:n])
			if answering && !d.isRoot() {
				line = append(line, buf[:n]...)
				for {
					_, after, found := bytes.Cut(line, []byte(d.prompt))
					if !found {
						break
					}
					line = after
					d.answerPrompt()
				}
				line = line[max(0, len(line)-len(d.prompt)):]
			}
			if err != nil {
				return
			}
		}
	})
}

func (d *dialog) isRoot() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.root
}

// answerPrompt sends the password to sudo, once.
func (d *dialog) answerPrompt() {
	d.mu.Lock()
	d.asked++
	asked := d.asked
	d.mu.Unlock()
	if asked > 1 {
		d.abortWith(errWrongPassword)
		return
	}
	d.noteProgress()
	if _, err := d.proc.Write(d.password); err != nil {
		d.abortWith(err)
	}
}

// awaitToken skips output up to token, and the rest of its line. With prompting, the prompt of
// sudo can come before.
func (d *dialog) awaitToken(token string, prompting bool) error {
	var line []byte
	for skipped := 0; skipped < maxNoise; skipped++ {
		c, err := d.out.ReadByte()
		if err != nil {
			d.noise.addOutput(line)
			return err
		}
		line = append(line, c)
		switch {
		case bytes.HasSuffix(line, []byte(token)):
			d.noise.addOutput(line[:len(line)-len(token)])
			d.noteProgress()
			_, err := d.readLine()
			return err
		case prompting && bytes.HasSuffix(line, []byte(d.prompt)):
			line = line[:0]
			d.answerPrompt()
		case c == '\n':
			d.noise.addOutput(line)
			line = line[:0]
		}
	}
	return errNoise
}

// readLine reads the rest of a line, with a length limit.
func (d *dialog) readLine() (string, error) {
	b, err := d.out.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = errNoise
	}
	return strings.TrimSpace(string(b)), err
}

// readAnswer reads the next answer of the bootstrap: its first word and the rest.
func (d *dialog) readAnswer(token string) (word, rest string, err error) {
	for skipped := 0; skipped < maxNoise; {
		b, err := d.out.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return "", "", err
		}
		if after, found := strings.CutPrefix(string(b), token+" "); found {
			d.noteProgress()
			word, rest, _ = strings.Cut(strings.TrimSpace(after), " ")
			return word, rest, nil
		}
		d.noise.addOutput(b)
		skipped += len(b)
	}
	return "", "", errNoise
}

// slowest is the slowest supported connection for sending a helper, in bytes a second.
const slowest = 32 << 10

// uploadHelper sends the helper, compressed if the host has gzip.
func (d *dialog) uploadHelper(h embedded.Helper, how string) error {
	packed := h.PackedReader()
	content, size := io.Reader(packed), packed.Size()
	if how != "gzip" {
		zr, err := gzip.NewReader(content)
		if err != nil {
			return fmt.Errorf("unpacking the node helper: %w", err)
		}
		content, size = zr, h.Size
	}
	if err := d.sendText(fmt.Sprintf("%d\n", size)); err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := content.Read(buf)
		if n > 0 {
			// Written data may still wait in buffers.
			d.timer.Reset(d.timeout + time.Duration(size)*time.Second/slowest)
			if _, err := d.proc.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpacking the node helper: %w", err)
		}
	}
}
