package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// copySparse copies a file and keeps its holes: a disk image has mostly holes. (io.Copy
// would fill them.)
func copySparse(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	if err := out.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		start, err := in.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		if at, err = in.Seek(start, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := in.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, at-start); err != nil {
			return err
		}
	}
}

// mountDisk mounts a disk image. The loop device is released with the mount.
func mountDisk(image, dir string) error {
	loop, err := attachLoop(image)
	if err != nil {
		return err
	}
	defer loop.Close()
	// Unused inode tables remain holes in the image, and deleted data become holes again.
	if err := unix.Mount(loop.Name(), dir, "ext4", unix.MS_NOATIME, "noinit_itable,discard"); err != nil {
		return fmt.Errorf("mounting %s: %w", image, err)
	}
	return nil
}

func attachLoop(image string) (*os.File, error) {
	disk, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer disk.Close()
	control, err := openLoopControl()
	if err != nil {
		return nil, err
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(disk.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	copy(config.Info.File_name[:], image)
	// Another program may claim the free device first.
	for range 100 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("finding a free loop device: %w", err)
		}
		loop, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("opening a loop device: %w", err)
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attaching %s to a loop device: %w", image, err)
		}
	}
	return nil, errors.New("no loop device is free: other programs claim them too fast")
}

func openLoopControl() (*os.File, error) {
	f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, refuseWith(IDNoLoop, "this host has no loop devices: "+err.Error(),
			"run modprobe loop; in a container, pass /dev/loop-control and the loop devices to it")
	}
	return f, nil
}

// freeBytes returns the space that root can use at path.
func freeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("reading the free space of %s: %w", path, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
