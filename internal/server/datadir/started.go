package datadir

// IsFresh reports whether the server has never been ready with this directory. Only then may
// missing keys and certificates of a CA be created: later, their loss is a loss of data.
func (d *Dir) IsFresh() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.info.Started
}

// MarkStarted saves that the server has been ready.
func (d *Dir) MarkStarted() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.info.Started {
		return nil
	}
	d.info.Started = true
	return d.writeInfo()
}
