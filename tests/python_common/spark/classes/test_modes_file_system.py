"""The file system of a lake on one machine: the modes that Hadoop sets, without a process for each."""

from pathlib import Path

from pyspark.sql import SparkSession


def test_each_mode_is_set_as_by_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    jvm, configuration = spark._jvm, spark._jsc.hadoopConfiguration()
    used = jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration)
    hadoops = jvm.org.apache.hadoop.fs.RawLocalFileSystem()
    hadoops.initialize(jvm.java.net.URI.create("file:///"), configuration)
    assert used.getClass().getName() == "ModesFileSystem"
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    # The sticky bit, which Hadoop's permissions have above the others, is of no use to a file.
    for mode in (*range(0, 0o1000, 7), 0o600, 0o700, 0o777, 0o1777):
        for file_system, name in ((used, "a"), (hadoops, "b")):
            path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / name))
            file_system.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission(mode))
        assert (tmp_path / "a").stat().st_mode & 0o777 == (tmp_path / "b").stat().st_mode & 0o777 == mode & 0o777
