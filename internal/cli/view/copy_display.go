package view

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/internal/bytesize"
)

// A CopyDisplay shows the progress of copies to or from several hosts: on a terminal
// a line that is overwritten, otherwise a new line from time to time. It shows
// nothing for a copy that ends quickly.
type CopyDisplay struct {
	w         io.Writer
	o         Options
	mu        sync.Mutex
	from      time.Time
	next      time.Time
	isReading bool
	wide      int
	done      map[string]CopyProgress
}

// A CopyProgress is the progress of a copy to or from a host, in bytes and files.
type CopyProgress struct {
	Done, Total     int64
	Files, AllFiles int
}

const (
	copyFrame = 200 * time.Millisecond
	copyLine  = 10 * time.Second
)

// NewCopyDisplay returns a display that writes to w.
func NewCopyDisplay(w io.Writer, o Options) *CopyDisplay {
	c := &CopyDisplay{w: w, o: o, done: map[string]CopyProgress{}}
	c.from = c.o.currentTime()
	c.next = c.from.Add(c.drawInterval())
	return c
}

func (c *CopyDisplay) drawInterval() time.Duration {
	if c.o.Size == nil {
		return copyLine
	}
	return copyFrame
}

// ShowRead records how many bytes of the source have been read before the copy.
func (c *CopyDisplay) ShowRead(done int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isReading = true
	if now, due := c.checkDue(); due {
		c.showLine(fmt.Sprintf("reading %s, %s", bytesize.Format(done), c.formatRate(now, done)))
	}
}

// checkDue returns the time, and reports whether the next line is due.
func (c *CopyDisplay) checkDue() (now time.Time, due bool) {
	now = c.o.currentTime()
	if now.Before(c.next) {
		return now, false
	}
	c.next = now.Add(c.drawInterval())
	return now, true
}

func (c *CopyDisplay) formatRate(now time.Time, done int64) string {
	return bytesize.Format(int64(float64(done)/max(now.Sub(c.from).Seconds(), 0.001))) + "/s"
}

// ShowProgress records a host's progress.
func (c *CopyDisplay) ShowProgress(host string, p CopyProgress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[host] = p
	if c.isReading { // the rate does not include the time for reading
		c.isReading, c.from = false, c.o.currentTime()
	}
	if now, due := c.checkDue(); due {
		c.drawSummary(now)
	}
}

func (c *CopyDisplay) drawSummary(now time.Time) {
	var sum CopyProgress
	whole := 0
	for _, d := range c.done {
		sum.Done, sum.Total, sum.Files, sum.AllFiles = sum.Done+d.Done, sum.Total+d.Total, sum.Files+d.Files, sum.AllFiles+d.AllFiles
		if d.Done == d.Total && d.Files >= d.AllFiles {
			whole++
		}
	}
	line := fmt.Sprintf("copying %s of %s, %s", bytesize.Format(sum.Done), bytesize.Format(sum.Total), c.formatRate(now, sum.Done))
	if sum.AllFiles > len(c.done) { // more than one file per host
		line = fmt.Sprintf("copying %d of %d files, %s", sum.Files, sum.AllFiles, strings.TrimPrefix(line, "copying "))
	}
	if len(c.done) > 1 {
		line += fmt.Sprintf(", %d of %d hosts done", whole, len(c.done))
	}
	c.showLine(line)
}

func (c *CopyDisplay) showLine(line string) {
	if c.o.Size == nil {
		fmt.Fprintln(c.w, line)
		return
	}
	columns, _ := c.o.Size()
	line = truncate(line, columns-1, c.o.Style.Unicode)
	fmt.Fprintf(c.w, "\r%s%s", line, strings.Repeat(" ", max(0, c.wide-len(line))))
	c.wide = len(line)
}

// Close removes the line from the terminal.
func (c *CopyDisplay) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wide > 0 {
		fmt.Fprintf(c.w, "\r%s\r", strings.Repeat(" ", c.wide))
		c.wide = 0
	}
}
