package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// copyFiles copies the contents of a folder, for example a container's root, without the mounts of its runtime, folders
// that contain only such mounts, and this program's own folder.
func copyFiles(from, to string) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	excluded := map[string]bool{filepath.Dir(own): true, filepath.Clean(to): true}
	for mount := range mounts {
		excluded[mount] = true
	}
	_, err = copyFolder(filepath.Clean(from), filepath.Clean(to), excluded)
	return err
}

// copyFolder reports whether all entries of a non-empty folder were excluded.
func copyFolder(from, to string, excluded map[string]bool) (bool, error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return false, err
	}
	copied := 0
	for _, entry := range entries {
		source, target := filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())
		if excluded[source] {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return false, err
		}
		empty := false
		switch kind := info.Mode().Type(); {
		case kind == os.ModeDir:
			if err = os.MkdirAll(target, 0o755); err == nil {
				empty, err = copyFolder(source, target, excluded)
			}
			if empty && err == nil {
				err = os.Remove(target)
			}
		case kind == os.ModeSymlink:
			var link string
			if link, err = os.Readlink(source); err == nil {
				err = os.Symlink(link, target)
			}
		case kind.IsRegular():
			err = copyFile(source, target, info.Mode().Perm())
		}
		if err != nil {
			return false, err
		}
		if !empty {
			copied++
		}
	}
	return copied == 0 && len(entries) > 0, nil
}

func copyFile(from, to string, mode os.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	if closed := target.Close(); err == nil {
		err = closed
	}
	return err
}

// mountPoints returns the mount points, in which the kernel writes white space in octal (proc_pid_mountinfo(5)).
func mountPoints() (map[string]bool, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	points := map[string]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 4 {
			points[unescape.Replace(words[4])] = true
		}
	}
	return points, lines.Err()
}
