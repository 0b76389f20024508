"""Paths of the archive's files, as Delta Lake writes them and as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession


def local_path(uri: str) -> str:
    """Return the path of a file that Delta Lake names by its URI, in which every special character is escaped once."""
    return unquote(uri.removeprefix("file://"))


def reader(spark: SparkSession) -> DataFrameReader:
    """Return a reader that takes paths literally: Spark would interpret some characters as a pattern, and fail on a
    colon next to one."""
    return spark.read.option("__globPaths__", "false")
