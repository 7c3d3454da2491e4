package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// errorsSeen is the Linux version from which syncfs(2) reports writes that failed.
const errorsSeenMajor, errorsSeenMinor = 5, 8

func (osFS) SyncVolume(name string) error {
	if !kernelAtLeast(errorsSeenMajor, errorsSeenMinor) {
		return errors.ErrUnsupported
	}
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(d.Fd()))
	if err != nil {
		err = &fs.PathError{Op: "syncfs", Path: name, Err: err}
	}
	return errors.Join(err, d.Close())
}

// kernelAtLeast compares the running kernel's version; false when it cannot be read.
func kernelAtLeast(major, minor int) bool {
	var uts unix.Utsname
	if unix.Uname(&uts) != nil {
		return false
	}
	var a, b int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(uts.Release[:]), "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

// bootIDFile holds a random id of this run of the kernel.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Session is made of the kernel's boot id, the id of the mount, which is never given twice in a boot, and the identity of
// the directory: a reboot, an unmounted volume, another container and a copy of the directory all change it.
func (osFS) Session(dir string) (string, error) {
	if local, err := keepsPages(dir); err != nil || !local {
		return "", err
	}
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_MNT_ID_UNIQUE, &st)
	if err != nil {
		return "", &fs.PathError{Op: "statx", Path: dir, Err: err}
	}
	if st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 { // before Linux 6.8
		return "", nil
	}
	boot, err := os.ReadFile(bootIDFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("boot %s mount %d device %d:%d inode %d born %d.%09d", strings.TrimSpace(string(boot)), st.Mnt_id,
		st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}

// keepsPages tells whether dir is on a file system whose unsynced writes stay in this kernel's page cache, whatever
// happens elsewhere: those of a network or of a user's process may lose them when the other side restarts.
func keepsPages(dir string) (bool, error) {
	var s unix.Statfs_t
	for {
		err := unix.Statfs(dir, &s)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
		break
	}
	switch s.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true, nil
	}
	return false, nil
}
